// SPDX-License-Identifier: Apache-2.0
#include "codec/sections.hpp"

#include "codec/checksum.hpp"
#include "support/checks.hpp"

#include <bit>
#include <cstddef>
#include <cstring>
#include <optional>
#include <span>
#include <string>

namespace slimgemm {
namespace {

static_assert(std::endian::native == std::endian::little, "packed data is little-endian");

void zero_fill(AlignedBuffer& buffer, std::uint64_t begin, std::uint64_t end) {
  std::memset(buffer.data() + begin, 0, end - begin);
}

}  // namespace

std::optional<format::Header> lay_out(const Contents& c) {
  const std::uint64_t row_tiles = format::tiles_along(c.n, format::tile_rows);
  const std::uint64_t tiles = row_tiles * format::tiles_along(c.k, format::tile_k);
  format::Header h{};
  h.magic = format::magic;
  h.version = format::version;
  h.encoding = static_cast<std::uint32_t>(c.encoding);
  h.n = c.n;
  h.k = c.k;
  h.window_base = static_cast<std::uint32_t>(c.window_base);
  h.exception_count = c.exception_count;
  h.tiles_offset = format::section_alignment;
  const auto tiles_bytes =
      checked_multiply(tiles, static_cast<std::uint64_t>(format::tile_bytes(c.encoding)));
  if (!tiles_bytes) return std::nullopt;
  h.tiles_bytes = *tiles_bytes;
  const auto tiles_end = checked_add(h.tiles_offset, h.tiles_bytes);
  if (!tiles_end) return std::nullopt;
  h.total_bytes = *tiles_end;
  if (c.encoding != Encoding::split12) return h;

  h.group_count = c.group_count;
  const auto groups_offset = checked_align_up(*tiles_end, format::section_alignment);
  const auto groups_bytes = checked_multiply(c.group_count, sizeof(format::ExceptionGroup));
  if (!groups_offset || !groups_bytes) return std::nullopt;
  const auto groups_end = checked_add(*groups_offset, *groups_bytes);
  if (!groups_end) return std::nullopt;
  const auto extra_offset = checked_align_up(*groups_end, format::section_alignment);
  if (!extra_offset) return std::nullopt;
  const auto total = checked_add(*extra_offset, (row_tiles + 1) * sizeof(std::uint32_t));
  if (!total) return std::nullopt;
  h.groups_offset = *groups_offset;
  h.extra_offset = *extra_offset;
  h.total_bytes = *total;
  return h;
}

format::Header make_header(const Contents& c) {
  const auto header = lay_out(c);
  if (header) return *header;
  throw Error(ErrorCode::out_of_memory, "n = " + std::to_string(c.n) +
                                            ", k = " + std::to_string(c.k) + " packed as " +
                                            name(c.encoding) + " take more than 2^64 - 1 bytes");
}

format::Header seal(format::Header header, bool has_nonfinite, std::uint64_t payload_xxh3) {
  header.flags = 0;
  if (has_nonfinite) header.flags |= format::has_nonfinite;
  if (!checksums_available()) return header;
  header.flags |= format::has_checksums;
  header.payload_xxh3 = payload_xxh3;
  header.header_xxh3 =
      checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(format::Header, header_xxh3)));
  return header;
}

void finish(AlignedBuffer& buffer, format::Header header, bool has_nonfinite) {
  zero_fill(buffer, sizeof(header), header.tiles_offset);
  if (header.group_count != 0) {
    zero_fill(buffer, header.tiles_offset + header.tiles_bytes, header.groups_offset);
    zero_fill(buffer, header.groups_offset + header.group_count * sizeof(format::ExceptionGroup),
              header.extra_offset);
  }
  const std::span<const std::byte> all(buffer.data(), buffer.size());
  header = seal(header, has_nonfinite, checksum(all.subspan(sizeof(header))));
  std::memcpy(buffer.data(), &header, sizeof(header));
}

}  // namespace slimgemm
