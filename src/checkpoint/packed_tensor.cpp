// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_tensor.hpp"

#include "checkpoint/fp16.hpp"
#include "checkpoint/xxh3.hpp"
#include "codec/packed_access.hpp"
#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

namespace slimgemm::checkpoint {
namespace {

constexpr std::uint64_t copy_bytes = std::uint64_t{1} << 24;
// Below this a second thread for the checksum is not worth its start.
constexpr std::uint64_t threaded_bytes = std::uint64_t{1} << 21;

[[noreturn]] void corrupt_tensor(const TensorRecord& record, const std::string& what) {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("tensor {}: {}", printable(record.stored_name()), what));
}

std::uint64_t align(std::uint64_t value) {
  return (value + matrix_alignment - 1) / matrix_alignment * matrix_alignment;
}

template <class T>
std::span<T> as(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

PackedMatrix pack_matrix(std::span<std::byte> dense, bool is_f32, const Selection& selection,
                         const PackOptions& options) {
  const auto n = static_cast<std::int64_t>(selection.n);
  const auto k = static_cast<std::int64_t>(selection.k);
  if (is_f32) return pack(std::span<const float>(as<float>(dense)), n, k, options);
  return pack(std::span<const std::uint16_t>(as<std::uint16_t>(dense)), n, k, options);
}

// Runs `work` while another thread adds the bytes to the checksum.
template <class Work>
void while_hashing(Xxh3& xxh3, std::span<const std::byte> bytes, const Work& work) {
  if (bytes.size() < threaded_bytes) {
    xxh3.update(bytes);
    work();
    return;
  }
  std::jthread hasher([&] { xxh3.update(bytes); });
  work();
}

void note_encoding(std::string& encoding, const char* name) {
  if (encoding.empty()) {
    encoding = name;
  } else if (encoding != name) {
    encoding = "mixed";
  }
}

std::uint64_t element_bytes(const TensorRecord& record) {
  return record.original.dtype == "F32" ? sizeof(float) : sizeof(std::uint16_t);
}

// Reads and checks the packed matrix that begins at `offset` of the tensor.
PackedMatrix read_matrix(const SafetensorsFile& file, const Tensor& stored,
                         const TensorRecord& record, std::uint64_t offset) {
  std::array<std::byte, sizeof(format::Header)> head{};
  if (stored.size_bytes() < offset || stored.size_bytes() - offset < head.size()) {
    corrupt_tensor(record, fmt::format("it has {} bytes, but a packed matrix begins at byte {}",
                                       stored.size_bytes(), offset));
  }
  file.read(stored, offset, head);
  format::Header header{};
  std::memcpy(&header, head.data(), head.size());
  if (header.magic != format::magic) {
    corrupt_tensor(
        record, fmt::format("no packed matrix begins at byte {}: magic is not SLIMPACK", offset));
  }
  if (header.version != format::version) {
    corrupt_tensor(record, fmt::format("version = {} at byte {}: this build reads version {} only",
                                       header.version, offset, format::version));
  }
  const std::uint64_t room = stored.size_bytes() - offset;
  if (header.total_bytes < head.size() || header.total_bytes > room) {
    corrupt_tensor(record, fmt::format("total_bytes = {} at byte {}: must be {} to {}",
                                       header.total_bytes, offset, head.size(), room));
  }
  if (header.n != record.n || header.k != record.k) {
    corrupt_tensor(record, fmt::format("the matrix at byte {} is {} x {}: the original is {} x {}",
                                       offset, header.n, header.k, record.n, record.k));
  }
  if ((header.flags & format::has_checksums) == 0) {
    corrupt_tensor(record, fmt::format("the matrix at byte {} has no checksums", offset));
  }
  AlignedBuffer buffer(header.total_bytes);
  file.read(stored, offset, {buffer.data(), buffer.size()});
  try {
    return PackedAccess::check_and_adopt(std::move(buffer));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_data) throw;
    corrupt_tensor(record, fmt::format("the matrix at byte {}: {}", offset, error.what()));
  }
}

void unpack_matrix(const PackedMatrix& packed, const TensorRecord& record,
                   std::span<std::byte> dense) {
  const bool is_f32 = record.original.dtype == "F32";
  if (packed.dtype() != (is_f32 ? DType::f32 : DType::bf16)) {
    corrupt_tensor(record, fmt::format("its encoding is {}: the original is {}",
                                       name(packed.encoding()), record.original.dtype));
  }
  if (is_f32) {
    unpack(packed, as<float>(dense));
    return;
  }
  unpack(packed, as<std::uint16_t>(dense));
  if (record.original.dtype == "F16" && !bf16_to_fp16(as<std::uint16_t>(dense))) {
    corrupt_tensor(record, "it holds a value that is not FP16, as the original is");
  }
}

void check_padding(const SafetensorsFile& file, const Tensor& stored, const TensorRecord& record,
                   std::uint64_t begin, std::uint64_t end) {
  std::array<std::byte, matrix_alignment> bytes{};
  if (end > stored.size_bytes()) {
    corrupt_tensor(record, fmt::format("it ends at byte {}, before the padding to {}",
                                       stored.size_bytes(), end));
  }
  const std::span<std::byte> padding(bytes.data(), end - begin);
  file.read(stored, begin, padding);
  for (std::size_t i = 0; i < padding.size(); ++i) {
    if (padding[i] == std::byte{0}) continue;
    corrupt_tensor(record, fmt::format("padding byte {} = {}: must be 0", begin + i,
                                       std::to_integer<int>(padding[i])));
  }
}

void restore_packed(const SafetensorsFile& file, const Tensor& stored, const TensorRecord& record,
                    const Sink& sink, Meter& meter, Scratch& scratch, Xxh3& xxh3) {
  std::uint64_t offset = 0;
  std::uint64_t original_offset = 0;
  std::string encoding;
  for (std::uint64_t i = 0; i < record.matrices; ++i) {
    if (!record.offsets.empty() && record.offsets[i] != offset) {
      corrupt_tensor(record,
                     fmt::format("its record says that matrix {} begins at byte {}: it is {}", i,
                                 record.offsets[i], offset));
    }
    const PackedMatrix packed = read_matrix(file, stored, record, offset);
    note_encoding(encoding, name(packed.encoding()));
    const std::span<std::byte> dense = scratch.get(record.n * record.k * element_bytes(record));
    unpack_matrix(packed, record, dense);
    const std::span<const std::byte> bytes = dense;
    while_hashing(xxh3, bytes, [&] { sink(original_offset, bytes); });
    const std::uint64_t end = offset + packed.bytes().size();
    offset = align(end);
    check_padding(file, stored, record, end, offset);
    original_offset += bytes.size();
    meter.add(bytes.size());
  }
  if (offset != stored.size_bytes()) {
    corrupt_tensor(record, fmt::format("it has {} bytes: its matrices end at {}",
                                       stored.size_bytes(), offset));
  }
  if (encoding != record.encoding) {
    corrupt_tensor(
        record, fmt::format("its encoding is {}: its record says {}", encoding, record.encoding));
  }
}

}  // namespace

std::span<std::byte> Scratch::get(std::uint64_t size_bytes) {
  if (!buffer_ || buffer_->size() < size_bytes) {
    buffer_ = nullptr;  // before the next one is made
    buffer_ = std::make_unique<AlignedBuffer>(size_bytes);
  }
  return {buffer_->data(), size_bytes};
}

std::optional<TensorRecord> pack_tensor(const SafetensorsFile& source, const Tensor& tensor,
                                        const Selection& selection, const PackOptions& options,
                                        const Sink& sink, Meter& meter, Scratch& scratch,
                                        PackedFacts& facts) {
  TensorRecord record{.original = tensor,
                      .packed = true,
                      .matrices = selection.matrices,
                      .n = selection.n,
                      .k = selection.k};
  constexpr std::array<std::byte, matrix_alignment> zeros{};
  const bool is_stack = tensor.shape.size() == 3;
  const bool is_fp16 = tensor.dtype == "F16";
  PackedFacts found;
  Xxh3 xxh3;
  const std::span<std::byte> dense = scratch.get(tensor.size_bytes() / selection.matrices);
  for (std::uint64_t i = 0; i < selection.matrices; ++i) {
    source.read(tensor, i * dense.size(), dense);
    const std::span<const std::byte> bytes = dense;
    if (is_fp16) {
      xxh3.update(bytes);
      if (!fp16_to_bf16(as<std::uint16_t>(dense))) return std::nullopt;
    }
    const auto pack_and_write = [&] {
      const PackedMatrix packed = pack_matrix(dense, tensor.dtype == "F32", selection, options);
      note_encoding(record.encoding, name(packed.encoding()));
      found.exceptions += static_cast<std::uint64_t>(packed.exception_count());
      if (packed.encoding() == Encoding::raw16) ++found.raw16_matrices;
      if (is_stack) record.offsets.push_back(record.end);
      const std::uint64_t end = record.end + packed.bytes().size();
      sink(record.end, packed.bytes());
      record.end = align(end);
      if (record.end != end) sink(end, std::span(zeros).first(record.end - end));
    };
    if (is_fp16) {
      pack_and_write();
    } else {
      while_hashing(xxh3, bytes, pack_and_write);
    }
    meter.add(dense.size());
  }
  record.xxh3 = xxh3.digest();
  facts.exceptions += found.exceptions;
  facts.raw16_matrices += found.raw16_matrices;
  return record;
}

std::uint64_t copy_tensor(const SafetensorsFile& source, const Tensor& tensor, const Sink& sink,
                          Meter& meter) {
  Xxh3 xxh3;
  AlignedBuffer buffer(std::min(copy_bytes, tensor.size_bytes()));
  for (std::uint64_t offset = 0; offset < tensor.size_bytes(); offset += buffer.size()) {
    const std::span<std::byte> piece(
        buffer.data(), std::min<std::uint64_t>(buffer.size(), tensor.size_bytes() - offset));
    source.read(tensor, offset, piece);
    xxh3.update(piece);
    sink(offset, piece);
    meter.add(piece.size());
  }
  return xxh3.digest();
}

void restore_tensor(const SafetensorsFile& file, const Tensor& stored, const TensorRecord& record,
                    const Sink& sink, Meter& meter, Scratch& scratch) {
  std::uint64_t digest = 0;
  if (record.packed) {
    Xxh3 xxh3;
    restore_packed(file, stored, record, sink, meter, scratch, xxh3);
    digest = xxh3.digest();
  } else {
    digest = copy_tensor(file, stored, sink, meter);
  }
  if (digest != record.xxh3) {
    corrupt_tensor(
        record, fmt::format("its bytes have the XXH3 {}: its record says {}; the data is damaged",
                            hex(digest), hex(record.xxh3)));
  }
}

}  // namespace slimgemm::checkpoint
