// SPDX-License-Identifier: Apache-2.0
// Packed tensors come first, in the order of the source, each a multiple of 256 bytes long; the
// others follow, those with the largest elements first, so that all are aligned. The header comes
// last: it holds the sizes and checksums that packing finds.
#include "checkpoint/output_file.hpp"
#include "checkpoint/packed_file.hpp"
#include "checkpoint/part_reader.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace slimgemm::checkpoint {
namespace {

// The kept tensors in the order in which they are written.
std::vector<const Tensor*> by_element_size(std::vector<const Tensor*> kept) {
  std::stable_sort(kept.begin(), kept.end(), [](const Tensor* a, const Tensor* b) {
    return dtype_bits(a->dtype).value_or(0) > dtype_bits(b->dtype).value_or(0);
  });
  return kept;
}

std::vector<TensorRecord> planned_records(const SafetensorsHeader& header,
                                          const std::vector<Selection>& selections) {
  std::vector<TensorRecord> records;
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    records.push_back({.original = header.tensors[i],
                       .packed = selections[i].packed,
                       .matrices = selections[i].matrices,
                       .n = selections[i].n,
                       .k = selections[i].k});
  }
  return records;
}

class FilePacker {
 public:
  FilePacker(const SafetensorsFile& source, const std::string& working,
             const PackCheckpointOptions& options, Workspace& workspace, Meter& meter,
             PackSummary& summary)
      : source_(source),
        header_(source.header()),
        options_(options),
        selections_(select_all(header_, options.select)),
        workspace_(workspace),
        meter_(meter),
        summary_(summary),
        reader_(source.descriptor(), source.path()),
        out_(working, workspace.pieces) {}

  void run() {
    check_packable(source_, selections_);
    std::vector<TensorRecord> planned = planned_records(header_, selections_);
    data_begin_ = reserve_header(source_, planned);
    out_.seek(data_begin_);
    pack_tensors(planned);
    copy_tensors();
    out_.seek(0);
    const std::string text = write_header(source_, records_, data_begin_);
    out_.write(std::as_bytes(std::span(text)));
    out_.finish();
  }

 private:
  [[nodiscard]] ByteRun run_of(const Tensor& tensor, std::uint64_t part_bytes) const {
    return {header_.data_begin() + tensor.begin, tensor.size_bytes(), part_bytes};
  }

  // `body` takes the parts one by one, while the next one is read.
  template <class Body>
  void for_parts(const std::vector<ByteRun>& runs, const Body& body) {
    PartReader parts(
        [&](const PartReader::Push& push) { read_runs(reader_, runs, workspace_.inputs, push); });
    while (const auto part = parts.next()) body(*part);
  }

  void keep(const Tensor& tensor, const std::string& why) {
    kept_.push_back(&tensor);
    summary_.kept.push_back({tensor.name, why});
  }

  void place(TensorRecord record, std::uint64_t size_bytes) {
    record.begin = position_;
    record.end = position_ + size_bytes;
    position_ = record.end;
    records_.push_back(std::move(record));
  }

  void pack_tensors(std::vector<TensorRecord>& planned) {
    std::vector<ByteRun> runs;
    std::vector<std::size_t> chosen;  // of the tensors
    for (std::size_t i = 0; i < planned.size(); ++i) {
      const Tensor& tensor = header_.tensors[i];
      if (!planned[i].packed) {
        keep(tensor, selections_[i].why);
        continue;
      }
      chosen.push_back(i);
      runs.push_back(run_of(tensor, tensor.size_bytes() / planned[i].matrices));
    }
    std::optional<std::size_t> refused;  // a tensor whose other matrices are passed over
    PackedFacts facts;                   // of the tensor that is packed
    for_parts(runs, [&](const Part& part) {
      if (refused == part.run) return;
      TensorRecord& record = planned[chosen[part.run]];
      if (part.offset == 0) facts = {};
      if (!pack_matrix(part.bytes, options_.codec, data_begin_ + position_, record, out_, facts)) {
        refused = part.run;
        out_.rewind(data_begin_ + position_);
        keep(header_.tensors[chosen[part.run]],
             "F16 with values that are not BF16: 12 bits cannot hold them");
        return;
      }
      meter_.add(part.bytes.size());
      if (!part.last) return;
      record.xxh3 = part.xxh3;
      add_packed(std::move(record), facts);
    });
  }

  void add_packed(TensorRecord record, const PackedFacts& facts) {
    ++summary_.tensors_packed;
    summary_.weights_packed += record.matrices * record.n * record.k;
    summary_.packed_bytes += record.end;
    summary_.exceptions += facts.exceptions;
    summary_.raw16_matrices += facts.raw16_matrices;
    const std::uint64_t size_bytes = record.end;
    place(std::move(record), size_bytes);
  }

  void copy_tensors() {
    const std::vector<const Tensor*> kept = by_element_size(kept_);
    std::vector<ByteRun> runs;
    runs.reserve(kept.size());
    for (const Tensor* tensor : kept) runs.push_back(run_of(*tensor, copied_part_bytes));
    for_parts(runs, [&](const Part& part) {
      out_.write(part.bytes);
      meter_.add(part.bytes.size());
      if (!part.last) return;
      TensorRecord record{.original = *kept[part.run]};
      record.xxh3 = part.xxh3;
      const std::uint64_t size_bytes = record.original.size_bytes();
      place(std::move(record), size_bytes);
    });
  }

  const SafetensorsFile& source_;
  const SafetensorsHeader& header_;
  const PackCheckpointOptions& options_;
  const std::vector<Selection> selections_;
  Workspace& workspace_;
  Meter& meter_;
  PackSummary& summary_;
  BulkReader reader_;
  OutputFile out_;
  std::uint64_t data_begin_ = 0;
  std::uint64_t position_ = 0;  // in the data: where the next tensor begins
  std::vector<const Tensor*> kept_;
  std::vector<TensorRecord> records_;
};

}  // namespace

std::vector<Selection> select_all(const SafetensorsHeader& header, const SelectOptions& options) {
  std::vector<Selection> selections;
  for (const Tensor& tensor : header.tensors) selections.push_back(select(tensor, options));
  return selections;
}

void check_packable(const SafetensorsFile& source, const std::vector<Selection>& selections) {
  const SafetensorsHeader& header = source.header();
  for (const auto& [key, value] : header.metadata) {
    if (!key.starts_with(key_prefix)) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is packed already: its metadata has {}", source.path(), key));
  }
  std::map<std::string_view, const Tensor*> names;
  for (const Tensor& tensor : header.tensors) names.emplace(tensor.name, &tensor);
  for (std::size_t i = 0; i < selections.size(); ++i) {
    if (!selections[i].packed) continue;
    const std::string name = packed_name(header.tensors[i].name);
    if (names.count(name) == 0) continue;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} has both {} and {}, the name that the packed tensor needs; leave it "
                    "out with --exclude",
                    source.path(), printable(header.tensors[i].name), printable(name)));
  }
}

std::uint64_t expected_bytes(const SafetensorsFile& source,
                             const std::vector<Selection>& selections) {
  std::uint64_t bytes = reserve_header(source, planned_records(source.header(), selections));
  for (std::size_t i = 0; i < selections.size(); ++i) {
    const Tensor& tensor = source.header().tensors[i];
    const Selection& selection = selections[i];
    bytes += selection.packed ? expected_packed_bytes(tensor, selection) : tensor.size_bytes();
  }
  return bytes;
}

PackedFileResult pack_file(const SafetensorsFile& source, const std::string& working,
                           const PackCheckpointOptions& options, Workspace& workspace, Meter& meter,
                           PackSummary& summary) {
  FilePacker packer(source, working, options, workspace, meter, summary);
  packer.run();
  return describe(PackedFile(working));
}

PackedFileResult describe(const PackedFile& packed) {
  packed.require_sound();
  PackedFileResult result{.file_bytes = packed.file().file_bytes(),
                          .header_xxh3 = packed.seal_digits(),
                          .tensor_bytes = packed.file().header().data_bytes()};
  for (const TensorRecord& record : packed.records()) {
    if (record.packed) result.renamed.emplace(record.original.name, record.stored_name());
  }
  return result;
}

}  // namespace slimgemm::checkpoint
