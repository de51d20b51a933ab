// SPDX-License-Identifier: Apache-2.0
// Packed tensors come first, in the order of the source, each a multiple of 256 bytes long; the
// others follow, those with the largest elements first, so that all are aligned. The header comes
// last: it holds the sizes and checksums that packing finds.
#include "checkpoint/file_io.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/packed_file.hpp"
#include "support/memory_keeper.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

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
                       .matrices = selections[i].matrices});
  }
  return records;
}

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
    bytes += selection.packed && tensor.dtype != "F32"
                 ? selection.matrices * split12_bytes(selection.n, selection.k)
                 : tensor.size_bytes();
  }
  return bytes;
}

PackedFileResult pack_file(const SafetensorsFile& source, const std::string& working,
                           const PackCheckpointOptions& options, Meter& meter,
                           PackSummary& summary) {
  const SafetensorsHeader& header = source.header();
  const std::vector<Selection> selections = select_all(header, options.select);
  check_packable(source, selections);
  const std::uint64_t data_begin = reserve_header(source, planned_records(header, selections));
  const MemoryKeeper keeper;
  OutputFile out(working);
  ReadAhead ahead(source.descriptor(), source.file_bytes());
  std::vector<TensorRecord> records;
  std::vector<const Tensor*> kept;
  std::uint64_t position = 0;
  const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) {
    out.write_at(data_begin + position + offset, bytes);
  };
  const auto place = [&](TensorRecord record, std::uint64_t size_bytes) {
    record.begin = position;
    record.end = position + size_bytes;
    position = record.end;
    records.push_back(std::move(record));
  };
  PackedFacts facts;
  Scratch scratch;
  const auto keep = [&](const Tensor& tensor, const std::string& why) {
    kept.push_back(&tensor);
    summary.kept.push_back({tensor.name, why});
  };
  for (std::size_t i = 0; i < selections.size(); ++i) {
    const Tensor& tensor = header.tensors[i];
    if (!selections[i].packed) {
      keep(tensor, selections[i].why);
      continue;
    }
    ahead.advance(header.data_begin() + tensor.begin);
    auto record =
        pack_tensor(source, tensor, selections[i], options.codec, sink, meter, scratch, facts);
    if (!record) {
      keep(tensor, "F16 with values that are not BF16: 12 bits cannot hold them");
      continue;
    }
    ++summary.tensors_packed;
    summary.weights_packed += selections[i].matrices * selections[i].n * selections[i].k;
    const std::uint64_t size_bytes = record->end;
    summary.packed_bytes += size_bytes;
    place(std::move(*record), size_bytes);
  }
  for (const Tensor* tensor : by_element_size(kept)) {
    TensorRecord record{.original = *tensor};
    record.xxh3 = copy_tensor(source, *tensor, sink, meter);
    place(std::move(record), tensor->size_bytes());
  }
  summary.exceptions += facts.exceptions;
  summary.raw16_matrices += facts.raw16_matrices;
  const std::string text = write_header(source, records, data_begin);
  out.write_at(0, std::as_bytes(std::span(text)));
  out.finish();
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
