// SPDX-License-Identifier: Apache-2.0
// How a packed matrix lies in the memory of a GPU (slimgemm/device_image.hpp):
//
//   split12   row_tiles times { k tiles | ExceptionHead | padding }, then the groups that no head
//             has room for
//   raw       row_tiles times { k tiles }; raw32 with the words of its tiles as HalvesOfPair
//
// Host and device code both include it.
#pragma once

#include "format/layout.hpp"

#include <cstdint>

namespace slimgemm::format {

inline constexpr int head_groups = 2;

/// What follows the k tiles of every split12 row tile in GPU memory: its first exceptions, found
/// without a look at any index (a load that depends on another one costs microseconds while the
/// weights stream), in the page of the weights (so does a page that is not in the TLB). Byte 7 of
/// the first entry is 1 if there are more.
struct alignas(128) ExceptionHead {
  ExceptionGroup groups[head_groups];
  std::uint32_t more_begin;  // in the groups after all row tiles, of the row tile's other groups
  std::uint32_t more_end;
};
static_assert(sizeof(ExceptionHead) == 384);

/// Groups of a row tile that do not fit its head, for so many groups beyond its first.
constexpr std::uint32_t groups_after_head(std::uint32_t extra_groups) {
  return extra_groups > 1 ? extra_groups - 1 : 0;
}

/// Room for groups after the heads: what is needed and `spare` more, rounded up to a multiple of
/// twice that, so that most matrices of one shape have images of one size.
constexpr std::int64_t groups_with_spare(std::int64_t needed, std::int64_t spare) {
  if (spare == 0) return needed;
  const std::int64_t step = 2 * spare;
  return (needed + spare + step - 1) / step * step;
}

/// From a row tile to the next, for so many bytes: aligned to 2048 bytes where that costs under
/// 1 %, else to 256. A row tile that starts in the middle of 256 bytes makes layers with K = 4096
/// up to 6 % slower (docs/decisions/verify.md, 44).
constexpr std::uint64_t row_tile_pitch(std::uint64_t bytes) {
  constexpr std::uint64_t least = 256;
  constexpr std::uint64_t best = 2048;
  const std::uint64_t aligned = (bytes + best - 1) / best * best;
  if ((aligned - bytes) * 100 < bytes) return aligned;
  return (bytes + least - 1) / least * least;
}

/// raw32: two FP32 weights that follow each other in a packed tile become their upper halves, a
/// pair of BF16 as the tensor cores take it, and their lower halves (the first weight in the lower
/// 16 bits). What the kernels split the weights into is found with fewer instructions that way.
struct HalvesOfPair {
  std::uint32_t upper;
  std::uint32_t lower;
};
constexpr HalvesOfPair halves_of_pair(std::uint32_t first, std::uint32_t second) {
  return {first >> 16 | (second & 0xFFFF0000u), (first & 0xFFFFu) | second << 16};
}
constexpr std::uint32_t first_of_pair(HalvesOfPair halves) {
  return halves.upper << 16 | (halves.lower & 0xFFFFu);
}
constexpr std::uint32_t second_of_pair(HalvesOfPair halves) {
  return (halves.upper & 0xFFFF0000u) | halves.lower >> 16;
}

/// Byte offsets of a device image.
struct ImageOffsets {
  constexpr ImageOffsets(Encoding encoding, std::uint64_t n, std::uint64_t k)
      : row_tiles(tiles_along(n, tile_rows)),
        k_tiles(tiles_along(k, tile_k)),
        head(k_tiles * static_cast<std::uint64_t>(tile_bytes(encoding))),
        row_tile_bytes(
            row_tile_pitch(head + (encoding == Encoding::split12 ? sizeof(ExceptionHead) : 0))),
        more(row_tiles * row_tile_bytes) {}

  std::uint64_t row_tiles;
  std::uint64_t k_tiles;
  std::uint64_t head;            // of the ExceptionHead, in a row tile
  std::uint64_t row_tile_bytes;  // from a row tile to the next
  std::uint64_t more;            // of the groups after all row tiles
};

}  // namespace slimgemm::format
