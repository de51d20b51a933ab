// SPDX-License-Identifier: Apache-2.0
// From a device image back to row-major weights: one warp a tile, then the exceptions.
//
// A lane decodes the 32 weights that it owns as a tensor-core operand, pairs along k of two rows.
// Rows of 128 bytes are put together in shared memory and written 16 bytes a lane.
#pragma once

#include "format/device_image.hpp"
#include "format/layout.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace slimgemm::cuda::unpack {

inline constexpr int threads_per_cta = 256;
inline constexpr int warps_per_cta = threads_per_cta / format::lanes;

struct Args {
  const unsigned char* image;
  std::uint64_t row_tile_bytes;
  std::uint64_t head_offset;
  std::uint64_t more_offset;
  void* out;        // of row first_row_tile * 16 on
  std::uint64_t k;  // columns
  std::uint64_t k_tiles;
  std::uint64_t first_row_tile;
  std::uint64_t row_tiles;  // to decode
  std::uint64_t rows;       // to write
  std::uint32_t half_base;  // split12: window_base / 2 in each byte
  bool aligned;             // rows of out begin at multiples of 16 bytes
};

// The four words of a fragment that a lane owns: (row, k), (row + 8, k), (row, k + 8),
// (row + 8, k + 8).
struct Words {
  std::uint32_t word[4];
};

template <Encoding encoding>
__device__ __forceinline__ void decode_tile(const uint4* tile, int lane, std::uint32_t half_base,
                                            Words (&out)[format::fragments_per_tile]) {
  if constexpr (encoding == Encoding::raw16) {
#pragma unroll
    for (int f = 0; f < format::fragments_per_tile; ++f) {
      const uint4 plane = __ldg(tile + f * format::lanes + lane);
      out[f] = {{plane.x, plane.y, plane.z, plane.w}};
    }
  } else {
    const uint4 low01 = __ldg(tile + lane);
    const uint4 low23 = __ldg(tile + format::lanes + lane);
    const uint4 nibble_plane = __ldg(tile + 2 * format::lanes + lane);
    const std::uint32_t low[8] = {low01.x, low01.y, low01.z, low01.w,
                                  low23.x, low23.y, low23.z, low23.w};
    const std::uint32_t nibbles[4] = {nibble_plane.x, nibble_plane.y, nibble_plane.z,
                                      nibble_plane.w};
#pragma unroll
    for (int f = 0; f < format::fragments_per_tile; ++f) {
      const std::uint32_t rotated = __funnelshift_l(nibbles[f], nibbles[f], 4);
      const std::uint32_t high[2] = {(nibbles[f] & 0x87878787u) + half_base,
                                     (rotated & 0x87878787u) + half_base};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        out[f].word[2 * half] = __byte_perm(low[2 * f + half], high[half], 0x5140);
        out[f].word[2 * half + 1] = __byte_perm(low[2 * f + half], high[half], 0x7362);
      }
    }
  }
}

// Rows of a tile in shared memory, 16 bytes apart more than they need: no bank conflicts.
inline constexpr int row_words = format::tile_k / 2 + 4;

template <Encoding encoding>
__global__ void __launch_bounds__(threads_per_cta) unpack_bf16_tiles(Args args) {
  __shared__ uint4 shared[warps_per_cta][format::tile_rows * row_words / 4];
  const int lane = static_cast<int>(threadIdx.x % format::lanes);
  const int warp = static_cast<int>(threadIdx.x / format::lanes);
  const std::uint64_t tile = std::uint64_t{blockIdx.x} * warps_per_cta + warp;
  if (tile >= args.row_tiles * args.k_tiles) return;
  const std::uint64_t r = tile / args.k_tiles;
  const std::uint64_t t = tile % args.k_tiles;
  const auto* const from =
      reinterpret_cast<const uint4*>(args.image + (args.first_row_tile + r) * args.row_tile_bytes +
                                     t * static_cast<std::uint64_t>(format::tile_bytes(encoding)));
  Words words[format::fragments_per_tile];
  decode_tile<encoding>(from, lane, args.half_base, words);

  auto* const staged = reinterpret_cast<std::uint32_t*>(shared[warp]);
#pragma unroll
  for (int f = 0; f < format::fragments_per_tile; ++f) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i % 2);
      staged[row * row_words + 8 * f + 4 * (i / 2) + lane % 4] = words[f].word[i];
    }
  }
  __syncwarp();
  auto* const out = static_cast<std::uint16_t*>(args.out);
  constexpr int chunk = 8;  // weights of 16 bytes
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 8 + 4 * i;
    const std::uint64_t to_row = r * format::tile_rows + row;
    const std::uint64_t k = t * format::tile_k + lane % 8 * chunk;
    if (to_row >= args.rows || k >= args.k) continue;
    const uint4 value = shared[warp][row * row_words / 4 + lane % 8];
    std::uint16_t* const to = out + to_row * args.k + k;
    if (args.aligned) {
      *reinterpret_cast<uint4*>(to) = value;
      continue;
    }
    const std::uint32_t parts[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (k + j < args.k) to[j] = static_cast<std::uint16_t>(parts[j / 2] >> (16 * (j % 2)));
    }
  }
}

// A lane's 16 bytes of a plane: the pairs at (row, k) and (row + 8, k), as halves.
inline __global__ void __launch_bounds__(threads_per_cta) unpack_f32_tiles(Args args) {
  const int lane = static_cast<int>(threadIdx.x % format::lanes);
  const std::uint64_t tile =
      std::uint64_t{blockIdx.x} * warps_per_cta + threadIdx.x / format::lanes;
  if (tile >= args.row_tiles * args.k_tiles) return;
  const std::uint64_t r = tile / args.k_tiles;
  const std::uint64_t t = tile % args.k_tiles;
  const auto* const from =
      reinterpret_cast<const uint4*>(args.image + (args.first_row_tile + r) * args.row_tile_bytes +
                                     t * std::uint64_t{format::raw32_tile_bytes});
  auto* const out = static_cast<std::uint32_t*>(args.out);
#pragma unroll
  for (int plane = 0; plane < format::raw32_planes; ++plane) {
    const uint4 value = __ldg(from + plane * format::lanes + lane);
    const format::HalvesOfPair pairs[2] = {{value.x, value.y}, {value.z, value.w}};
    const std::uint32_t parts[4] = {
        format::first_of_pair(pairs[0]), format::second_of_pair(pairs[0]),
        format::first_of_pair(pairs[1]), format::second_of_pair(pairs[1])};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint64_t row = r * format::tile_rows + lane / 4 + 8 * (i / 2);
      const std::uint64_t k = t * format::tile_k + 8 * plane + 2 * (lane % 4) + i % 2;
      if (row < args.rows && k < args.k) out[row * args.k + k] = parts[i];
    }
  }
}

// One warp a row tile puts the exceptions' own bits in place of the stand-ins.
inline __global__ void __launch_bounds__(threads_per_cta) unpack_exceptions(Args args) {
  const unsigned int lane = threadIdx.x % format::lanes;
  const std::uint64_t r = std::uint64_t{blockIdx.x} * warps_per_cta + threadIdx.x / format::lanes;
  if (r >= args.row_tiles) return;
  const auto* const head = reinterpret_cast<const format::ExceptionHead*>(
      args.image + (args.first_row_tile + r) * args.row_tile_bytes + args.head_offset);
  auto* const out = static_cast<std::uint16_t*>(args.out);
  const auto put = [&](const format::ExceptionEntry& entry) {
    const std::uint64_t row = r * format::tile_rows + entry.row;
    if (entry.row != format::unused_row && row < args.rows)
      out[row * args.k + entry.k] = entry.bits;
  };
  static_assert(format::head_groups * format::group_entries == format::lanes);
  put(head->groups[lane / format::group_entries].entries[lane % format::group_entries]);
  const auto* const more =
      reinterpret_cast<const format::ExceptionEntry*>(args.image + args.more_offset);
  const std::uint64_t end = std::uint64_t{head->more_end} * format::group_entries;
  for (std::uint64_t i = std::uint64_t{head->more_begin} * format::group_entries + lane; i < end;
       i += format::lanes) {
    put(more[i]);
  }
}

}  // namespace slimgemm::cuda::unpack
