// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum.hpp"
#include "codec/packed_access.hpp"
#include "codec/validate.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace slimgemm {

struct PackedMatrix::Storage {
  AlignedBuffer buffer;  // of no size where the bytes are another's
  std::span<const std::byte> bytes;
  format::Header header;
};

PackedMatrix PackedMatrix::from_bytes(std::span<const std::byte> bytes) {
  check_header(bytes);
  // The copy is checked, not the original: nobody can change it in between.
  AlignedBuffer buffer(bytes.size());
  constexpr std::int64_t copy_grain = std::int64_t{1} << 20;
  parallel_for(static_cast<std::int64_t>(bytes.size()), copy_grain, 0,
               [&](std::int64_t begin, std::int64_t end) {
                 std::memcpy(buffer.data() + begin, bytes.data() + begin,
                             static_cast<std::size_t>(end - begin));
               });
  return PackedAccess::check_and_adopt(std::move(buffer));
}

std::int64_t PackedMatrix::n() const noexcept {
  return static_cast<std::int64_t>(storage_->header.n);
}
std::int64_t PackedMatrix::k() const noexcept {
  return static_cast<std::int64_t>(storage_->header.k);
}
DType PackedMatrix::dtype() const noexcept {
  return encoding() == Encoding::raw32 ? DType::f32 : DType::bf16;
}
Encoding PackedMatrix::encoding() const noexcept {
  return static_cast<Encoding>(storage_->header.encoding);
}
std::int64_t PackedMatrix::exception_count() const noexcept {
  return static_cast<std::int64_t>(storage_->header.exception_count);
}
int PackedMatrix::window_base() const noexcept {
  return static_cast<int>(storage_->header.window_base);
}
double PackedMatrix::bits_per_weight() const noexcept {
  return 8.0 * static_cast<double>(storage_->header.total_bytes) /
         (static_cast<double>(n()) * static_cast<double>(k()));
}
std::span<const std::byte> PackedMatrix::bytes() const noexcept { return storage_->bytes; }

const format::Header& PackedAccess::header(const PackedMatrix& packed) noexcept {
  return packed.storage_->header;
}

std::uint64_t PackedAccess::row_tiles(const PackedMatrix& packed) noexcept {
  return format::tiles_along(header(packed).n, format::tile_rows);
}

std::uint64_t PackedAccess::k_tiles(const PackedMatrix& packed) noexcept {
  return format::tiles_along(header(packed).k, format::tile_k);
}

std::span<const std::byte> PackedAccess::tiles(const PackedMatrix& packed) noexcept {
  const format::Header& h = header(packed);
  return packed.bytes().subspan(h.tiles_offset, h.tiles_bytes);
}

std::span<const format::ExceptionGroup> PackedAccess::groups(const PackedMatrix& packed) noexcept {
  const format::Header& h = header(packed);
  if (h.group_count == 0) return {};
  return {reinterpret_cast<const format::ExceptionGroup*>(packed.bytes().data() + h.groups_offset),
          h.group_count};
}

std::span<const std::uint32_t> PackedAccess::extra_begin(const PackedMatrix& packed) noexcept {
  const format::Header& h = header(packed);
  if (h.group_count == 0) return {};
  return {reinterpret_cast<const std::uint32_t*>(packed.bytes().data() + h.extra_offset),
          row_tiles(packed) + 1};
}

PackedMatrix PackedAccess::adopt(AlignedBuffer&& buffer) {
  const std::span<const std::byte> bytes(buffer.data(), buffer.size());
  return hold(std::move(buffer), bytes);
}

PackedMatrix PackedAccess::check_and_adopt(AlignedBuffer&& buffer) {
  const std::span<const std::byte> bytes(buffer.data(), buffer.size());
  const format::Header header = check_header(bytes);
  check_payload(bytes, header, checksum(bytes.subspan(sizeof(header))));
  return adopt(std::move(buffer));
}

PackedMatrix PackedAccess::check_and_view(std::span<const std::byte> bytes,
                                          std::uint64_t payload_xxh3) {
  check_payload(bytes, check_header(bytes), payload_xxh3);
  return hold(AlignedBuffer(0), bytes);
}

PackedMatrix PackedAccess::hold(AlignedBuffer&& buffer, std::span<const std::byte> bytes) {
  format::Header header;
  std::memcpy(&header, bytes.data(), sizeof(header));
  return PackedMatrix(std::make_shared<const PackedMatrix::Storage>(
      PackedMatrix::Storage{std::move(buffer), bytes, header}));
}

}  // namespace slimgemm
