// SPDX-License-Identifier: Apache-2.0
// The packed layout of one matrix, as constants and plain structs. docs/format.md is the
// specification; this file and it say the same. Host and device code both include it.
#pragma once

#include <slimgemm/types.hpp>

#include <cstddef>
#include <cstdint>

namespace slimgemm::format {

inline constexpr std::uint64_t magic = 0x4B434150'4D494C53;  // "SLIMPACK", little-endian
inline constexpr std::uint32_t version = 1;

// A tile is 16 rows (output features) x 64 columns (k): four m16n8k16 A fragments.
inline constexpr int tile_rows = 16;
inline constexpr int tile_k = 64;
inline constexpr int tile_weights = tile_rows * tile_k;
inline constexpr int fragments_per_tile = tile_k / 16;
inline constexpr int lanes = 32;  // of a warp; each owns 32 weights of a tile
inline constexpr int lane_plane_bytes = 16;
inline constexpr int plane_bytes = lanes * lane_plane_bytes;

// Planes of a tile: split12 two of low bytes + one of nibbles, raw16 four, raw32 eight.
inline constexpr int split12_planes = 3;
inline constexpr int raw16_planes = 4;
inline constexpr int raw32_planes = 8;
inline constexpr int split12_tile_bytes = split12_planes * plane_bytes;  // 1536
inline constexpr int raw16_tile_bytes = raw16_planes * plane_bytes;      // 2048
inline constexpr int raw32_tile_bytes = raw32_planes * plane_bytes;      // 4096

constexpr int tile_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::split12:
      return split12_tile_bytes;
    case Encoding::raw16:
      return raw16_tile_bytes;
    case Encoding::raw32:
      return raw32_tile_bytes;
  }
  return 0;
}

// The window: 16 biased exponents from an even base. Exponents 0 (zero, subnormal) and 255 (Inf,
// NaN) are always exceptions.
inline constexpr int window_exponents = 16;
inline constexpr int max_window_base = 238;

/// High byte of a weight with sign (0x80 or 0) and code in the low bits of `sign_code`: no carry
/// reaches the sign, as base is at most max_window_base.
constexpr std::uint32_t high_byte(std::uint32_t sign_code, int window_base) {
  return sign_code + static_cast<std::uint32_t>(window_base) / 2;
}

// Exceptions come in groups of 16 for one row tile. The first `row_tiles` groups are the first
// group of each row tile, so that a kernel finds it without a look-up; the rest follow, row tile by
// row tile, from index row_tiles + extra_begin[row_tile].
struct ExceptionEntry {
  std::uint32_t k;     // column
  std::uint16_t bits;  // the weight's BF16 bits
  std::uint8_t row;    // row inside the tile, 0..15; unused_row: an empty slot
  std::uint8_t zero;   // 0
};
inline constexpr int group_entries = 16;
inline constexpr std::uint8_t unused_row = 0xFF;
struct ExceptionGroup {
  ExceptionEntry entries[group_entries];
};
static_assert(sizeof(ExceptionEntry) == 8 && sizeof(ExceptionGroup) == 128);

enum HeaderFlags : std::uint32_t {
  has_checksums = 1,  // the two XXH3 fields are filled in
  has_nonfinite = 2,  // some weight is Inf or NaN
  known_flags = 3,
};

inline constexpr std::size_t section_alignment = 256;

// All integers little-endian. Sections start at multiples of section_alignment, in this order,
// padded with zero bytes; an absent section has offset 0 and size 0.
struct Header {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t encoding;  // slimgemm::Encoding
  std::uint64_t n;
  std::uint64_t k;
  std::uint32_t window_base;  // split12; otherwise 0
  std::uint32_t flags;        // HeaderFlags
  std::uint64_t exception_count;
  std::uint64_t tiles_offset;  // row_tiles * k_tiles tiles, [row_tile][k_tile]
  std::uint64_t tiles_bytes;
  std::uint64_t groups_offset;  // ExceptionGroup[group_count]; split12 only
  std::uint64_t group_count;    // row_tiles + extra groups
  std::uint64_t extra_offset;   // uint32 extra_begin[row_tiles + 1]; split12 only
  std::uint64_t total_bytes;    // of the whole packed matrix
  std::uint64_t payload_xxh3;   // XXH3-64 of bytes [sizeof(Header), total_bytes)
  std::uint64_t header_xxh3;    // XXH3-64 of the header bytes before this field
  std::uint64_t reserved[2];    // 0
};
static_assert(sizeof(Header) == 128);

constexpr std::uint64_t tiles_along(std::uint64_t size, int tile) {
  return (size + static_cast<std::uint64_t>(tile) - 1) / static_cast<std::uint64_t>(tile);
}

// Where weight (row, k) of a tile lies. `fragment` is its k16 block; inside it an m16n8k16 A
// fragment gives lane 4 * (row % 8) + (k % 8) / 2 eight weights, in the order
// index = 4 * (k16 >= 8) + 2 * (row >= 8) + k % 2.
struct FragmentSlot {
  int fragment;  // 0..3
  int lane;      // 0..31
  int index;     // 0..7
};
constexpr FragmentSlot fragment_slot(int row, int k) {
  const int k16 = k % 16;
  return {k / 16, 4 * (row % 8) + (k16 % 8) / 2, 4 * (k16 / 8) + 2 * (row / 8) + k16 % 2};
}

// split12: byte of a tile that holds the low byte of a weight: planes 0 and 1, two fragments each.
constexpr int low_byte_offset(FragmentSlot s) {
  return (s.fragment / 2) * plane_bytes + s.lane * lane_plane_bytes + (s.fragment % 2) * 8 +
         s.index;
}
// split12: plane 2 holds a 32-bit word per lane and fragment. Its byte b (0..3) carries the nibbles
// of weights b and 4 + b. A nibble is sign << 3 | code; code = (exponent >> 1) - (base >> 1).
//   weight b     (index 0..3): sign in bit 7, code in bits 2..0 of byte b
//   weight 4 + b (index 4..7): sign in bit 3 of byte b, code in bits 6..4 of byte (b + 3) % 4
// so that `word & 0x87878787` gives the first four high bytes and the same of the word rotated left
// by 4 bits the other four.
constexpr int nibble_word_offset(FragmentSlot s) {
  return 2 * plane_bytes + s.lane * lane_plane_bytes + s.fragment * 4;
}
constexpr std::uint32_t nibble_bits(int index, std::uint32_t sign, std::uint32_t code) {
  const std::uint32_t high = (sign << 7 | code) << (8 * (index % 4));
  return index < 4 ? high : (high >> 4 | high << 28);
}
// raw16: plane = fragment, 8 weights a lane. raw32: two planes a fragment, 4 weights a lane in
// each.
constexpr int raw16_offset(FragmentSlot s) {
  return s.fragment * plane_bytes + s.lane * lane_plane_bytes + 2 * s.index;
}
constexpr int raw32_offset(FragmentSlot s) {
  return (2 * s.fragment + s.index / 4) * plane_bytes + s.lane * lane_plane_bytes +
         4 * (s.index % 4);
}

}  // namespace slimgemm::format
