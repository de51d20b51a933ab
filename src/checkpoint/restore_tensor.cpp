// SPDX-License-Identifier: Apache-2.0
// The way back. The reading thread finds the matrices of a stack by their headers, as each says
// where the next one begins, and takes the checksums; all else is checked here.
#include "checkpoint/file_io.hpp"
#include "checkpoint/fp16.hpp"
#include "checkpoint/packed_tensor.hpp"
#include "checkpoint/xxh3.hpp"
#include "codec/packed_access.hpp"
#include "codec/unpack_rows.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>

namespace slimgemm::checkpoint {
namespace {

[[noreturn]] void corrupt_tensor(const TensorRecord& record, const std::string& what) {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("tensor {}: {}", printable(record.stored_name()), what));
}

// The checksum of bytes [begin, end) of what comes in pieces.
class RangeXxh3 {
 public:
  RangeXxh3(std::uint64_t begin, std::uint64_t end) : begin_(begin), end_(end) {}

  void add(std::span<const std::byte> piece) {
    const std::uint64_t first = std::max(begin_, position_);
    const std::uint64_t last = std::min(end_, position_ + piece.size());
    if (first < last) xxh3_.update(piece.subspan(first - position_, last - first));
    position_ += piece.size();
  }
  [[nodiscard]] std::uint64_t digest() const { return xxh3_.digest(); }

 private:
  std::uint64_t begin_;
  std::uint64_t end_;
  std::uint64_t position_ = 0;
  Xxh3 xxh3_;
};

// What the reading thread does.
class StoredReader {
 public:
  StoredReader(const SafetensorsFile& file, const std::vector<const TensorRecord*>& records,
               BufferPool& buffers, const PartReader::Push& push)
      : file_(file),
        reader_(file.descriptor(), file.path()),
        records_(records),
        buffers_(buffers),
        push_(push) {}

  void run() {
    for (std::size_t i = 0; i < records_.size(); ++i) {
      const TensorRecord& record = *records_[i];
      try {
        if (!(record.packed ? read_matrices(record, i) : read_kept(record, i))) return;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::corrupt_data) throw;
        if (!push_({.run = i, .last = true, .problem = error.what()})) return;
      }
    }
  }

 private:
  static std::uint64_t size(const TensorRecord& record) { return record.end - record.begin; }
  [[nodiscard]] std::uint64_t place(const TensorRecord& record) const {
    return file_.header().data_begin() + record.begin;
  }

  bool read_kept(const TensorRecord& record, std::size_t index) {
    return read_run(reader_, {place(record), size(record), copied_part_bytes}, index, buffers_,
                    push_);
  }

  bool read_matrices(const TensorRecord& record, std::size_t index) {
    std::uint64_t offset = 0;
    for (std::uint64_t i = 0; i < record.matrices; ++i) {
      if (!record.offsets.empty() && record.offsets[i] != offset) {
        corrupt_tensor(record,
                       fmt::format("its record says that matrix {} begins at byte {}: it is {}", i,
                                   record.offsets[i], offset));
      }
      const std::uint64_t bytes = matrix_bytes(record, offset);
      const std::uint64_t end = std::min(size(record), align_matrix(offset + bytes));
      Part part{.run = index, .last = i + 1 == record.matrices, .offset = offset};
      part.buffer = buffers_.take(end - offset + BulkReader::slack_bytes);
      RangeXxh3 xxh3(sizeof(format::Header), bytes);
      part.bytes = reader_.read(*part.buffer, place(record) + offset, end - offset,
                                matrix_alignment, [&](auto piece) { xxh3.add(piece); });
      part.xxh3 = xxh3.digest();
      if (!push_(std::move(part))) return false;
      offset = align_matrix(offset + bytes);
    }
    return true;
  }

  // Of the matrix that begins at `offset`, from its header, as far as that must be right here.
  std::uint64_t matrix_bytes(const TensorRecord& record, std::uint64_t offset) const {
    format::Header header{};
    if (size(record) < offset || size(record) - offset < sizeof(header)) {
      corrupt_tensor(record, fmt::format("it has {} bytes, but a packed matrix begins at byte {}",
                                         size(record), offset));
    }
    read_at(file_.descriptor(), place(record) + offset,
            std::as_writable_bytes(std::span(&header, 1)), file_.path());
    if (header.magic != format::magic) {
      corrupt_tensor(
          record, fmt::format("no packed matrix begins at byte {}: magic is not SLIMPACK", offset));
    }
    if (header.version != format::version) {
      corrupt_tensor(record,
                     fmt::format("version = {} at byte {}: this build reads version {} only",
                                 header.version, offset, format::version));
    }
    const std::uint64_t room = size(record) - offset;
    if (header.total_bytes < sizeof(header) || header.total_bytes > room) {
      corrupt_tensor(record, fmt::format("total_bytes = {} at byte {}: must be {} to {}",
                                         header.total_bytes, offset, sizeof(header), room));
    }
    return header.total_bytes;
  }

  const SafetensorsFile& file_;
  BulkReader reader_;
  const std::vector<const TensorRecord*>& records_;
  BufferPool& buffers_;
  const PartReader::Push& push_;
};

// One tensor, part by part.
class Restorer {
 public:
  Restorer(const TensorRecord& record, PieceSink& sink) : record_(record), sink_(sink) {}

  /// Returns the bytes that it made. Errors: corrupt_data.
  std::uint64_t add(const Part& part) {
    if (!part.problem.empty()) throw Error(ErrorCode::corrupt_data, part.problem);
    if (record_.packed) return add_matrix(part);
    sink_.write(part.bytes);
    if (part.last) check_digest(part.xxh3);
    return part.bytes.size();
  }

 private:
  std::uint64_t add_matrix(const Part& part) {
    const PackedMatrix packed = adopt(part);
    note_encoding(encoding_, name(packed.encoding()));
    const bool is_f32 = record_.original.dtype == "F32";
    if (packed.dtype() != (is_f32 ? DType::f32 : DType::bf16)) {
      corrupt_tensor(record_, fmt::format("its encoding is {}: the original is {}",
                                          name(packed.encoding()), record_.original.dtype));
    }
    if (is_f32) {
      unpack_all<float>(packed);
    } else {
      unpack_all<std::uint16_t>(packed);
    }
    check_padding(part, packed.bytes().size());
    if (part.last) {
      const std::uint64_t end = align_matrix(part.offset + packed.bytes().size());
      const std::uint64_t size = record_.end - record_.begin;
      if (end != size) {
        corrupt_tensor(record_, fmt::format("it has {} bytes: its matrices end at {}", size, end));
      }
      if (encoding_ != record_.encoding) {
        corrupt_tensor(record_, fmt::format("its encoding is {}: its record says {}", encoding_,
                                            record_.encoding));
      }
      check_digest(xxh3_.digest());
    }
    return record_.original.size_bytes() / record_.matrices;
  }

  [[nodiscard]] PackedMatrix adopt(const Part& part) const {
    format::Header header{};
    std::memcpy(&header, part.bytes.data(), sizeof(header));
    if (header.n != record_.n || header.k != record_.k) {
      corrupt_tensor(record_,
                     fmt::format("the matrix at byte {} is {} x {}: the original is {} x {}",
                                 part.offset, header.n, header.k, record_.n, record_.k));
    }
    if ((header.flags & format::has_checksums) == 0) {
      corrupt_tensor(record_, fmt::format("the matrix at byte {} has no checksums", part.offset));
    }
    try {
      return PackedAccess::check_and_view(
          part.bytes.first(std::min<std::uint64_t>(header.total_bytes, part.bytes.size())),
          part.xxh3);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt_data) throw;
      corrupt_tensor(record_, fmt::format("the matrix at byte {}: {}", part.offset, error.what()));
    }
  }

  // As many row tiles at a time as there is room for.
  template <class T>
  void unpack_all(const PackedMatrix& packed) {
    const std::uint64_t row_bytes = record_.k * sizeof(T);
    const std::uint64_t bytes = format::tile_rows * row_bytes;
    std::unique_ptr<AlignedBuffer> apart;  // where the sink has no room for whole row tiles
    for (std::uint64_t row = 0; row < record_.n;) {
      const std::uint64_t most = (record_.n - row) * row_bytes;
      std::span<std::byte> room;
      if (bytes <= sink_.piece_max()) {
        room = sink_.reserve(std::min(most, std::max(bytes, sink_.piece_max() / 4)), most);
      }
      const bool in_place =
          !room.empty() && reinterpret_cast<std::uintptr_t>(room.data()) % alignof(T) == 0;
      if (!in_place) {
        if (!apart) apart = std::make_unique<AlignedBuffer>(bytes);
        room = {apart->data(), apart->size()};
      }
      const std::uint64_t rows =
          room.size() >= most ? record_.n - row : room.size() / bytes * format::tile_rows;
      room = room.first(rows * row_bytes);
      unpack_some<T>(packed, row / format::tile_rows, room);
      xxh3_.update(room);
      if (in_place) {
        sink_.commit(room.size());
      } else {
        sink_.write(room);
      }
      row += rows;
    }
  }

  template <class T>
  void unpack_some(const PackedMatrix& packed, std::uint64_t row_tile, std::span<std::byte> to) {
    const std::span<T> out(reinterpret_cast<T*>(to.data()), to.size() / sizeof(T));
    codec::unpack_rows(packed, row_tile, out);
    if constexpr (sizeof(T) == sizeof(std::uint16_t)) {
      if (record_.original.dtype != "F16" || bf16_to_fp16(out)) return;
      corrupt_tensor(record_, "it holds a value that is not FP16, as the original is");
    }
  }

  void check_padding(const Part& part, std::uint64_t begin) const {
    const std::uint64_t end = part.offset + align_matrix(begin);
    if (part.offset + part.bytes.size() < end) {
      corrupt_tensor(record_, fmt::format("it ends at byte {}, before the padding to {}",
                                          record_.end - record_.begin, end));
    }
    for (std::uint64_t i = begin; i < part.bytes.size(); ++i) {
      if (part.bytes[i] == std::byte{0}) continue;
      corrupt_tensor(record_, fmt::format("padding byte {} = {}: must be 0", part.offset + i,
                                          std::to_integer<int>(part.bytes[i])));
    }
  }

  void check_digest(std::uint64_t digest) const {
    if (digest == record_.xxh3) return;
    corrupt_tensor(
        record_, fmt::format("its bytes have the XXH3 {}: its record says {}; the data is damaged",
                             hex(digest), hex(record_.xxh3)));
  }

  const TensorRecord& record_;
  PieceSink& sink_;
  std::string encoding_;
  Xxh3 xxh3_;
};

}  // namespace

void restore_tensors(const SafetensorsFile& file, const std::vector<const TensorRecord*>& records,
                     Workspace& workspace, Meter& meter, RestoreTarget& target) {
  PartReader parts([&](const PartReader::Push& push) {
    StoredReader(file, records, workspace.inputs, push).run();
  });
  std::optional<std::size_t> current;
  std::optional<Restorer> restorer;  // none: something was wrong with the current tensor
  while (const auto part = parts.next()) {
    const TensorRecord& record = *records[part->run];
    if (current != part->run) {
      current = part->run;
      restorer.emplace(record, target.begin(record));
    }
    if (!restorer) continue;
    std::string problem;
    try {
      meter.add(restorer->add(*part));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt_data) throw;
      problem = error.what();
    }
    if (problem.empty() && !part->last) continue;
    restorer.reset();
    target.end(record, problem);
  }
}

}  // namespace slimgemm::checkpoint
