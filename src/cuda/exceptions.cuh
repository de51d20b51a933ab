// SPDX-License-Identifier: Apache-2.0
// Exceptions of a row tile on the tensor cores.
//
// An exception's slot in the tile decodes to the stand-in (BF16 0x3800). The main sum therefore
// holds stand_in * x[k] in its place. A group of 16 exceptions is one more k16 step: column j of
// its A fragment has a single nonzero, in the row of exception j, and row j of B is x at its k. Two
// accumulators come of it,
//
//   stand_ins = sum of stand_in * x[k]        true_weights = sum of w * x[k]
//
// and the result is (main - stand_ins) * scale + true_weights. The two are kept apart so that the
// stand-in cancels exactly where it is all there is: a row of x with one nonzero entry gives back
// the weight's bits, however small or large the weight is against the window.
#pragma once

#include "cuda/ptx/mma.cuh"
#include "cuda/stream_kernel_args.hpp"
#include "format/layout.hpp"

#include <cstdint>

namespace slimgemm::cuda {

/// x of one token block: `tokens` >= 1 rows, row_stride elements apart.
struct TokenBlock {
  const std::uint16_t* x;
  std::int64_t row_stride;
  int tokens;
};

/// The four entries whose columns a lane holds in A and B fragments: 2t, 2t + 1, 2t + 8, 2t + 9.
struct LaneEntries {
  std::uint32_t k[4];
  std::uint32_t row[4];
  std::uint32_t bits[4];
};

__device__ __forceinline__ LaneEntries load_entries(const format::ExceptionGroup* group, int lane) {
  const auto* pairs = reinterpret_cast<const uint4*>(group);  // two entries each
  const uint4 low = __ldg(pairs + lane % 4);
  const uint4 high = __ldg(pairs + lane % 4 + 4);
  LaneEntries e;
  const std::uint32_t tail[4] = {low.y, low.w, high.y, high.w};
  e.k[0] = low.x;
  e.k[1] = low.z;
  e.k[2] = high.x;
  e.k[3] = high.z;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    e.row[i] = (tail[i] >> 16) & 0xFF;
    e.bits[i] = tail[i] & 0xFFFF;
  }
  return e;
}

/// A fragment with value[i] where entry i's row is this lane's row, else 0.
__device__ __forceinline__ void sparse_fragment(std::uint32_t (&a)[4], const LaneEntries& e,
                                                const std::uint32_t (&value)[4], int lane) {
  const std::uint32_t g = lane / 4;
  const auto pick = [&](int i, std::uint32_t row) { return e.row[i] == row ? value[i] : 0u; };
  a[0] = pick(0, g) | pick(1, g) << 16;
  a[1] = pick(0, g + 8) | pick(1, g + 8) << 16;
  a[2] = pick(2, g) | pick(3, g) << 16;
  a[3] = pick(2, g + 8) | pick(3, g + 8) << 16;
}

/// x at (token, k of entry i) for the lane's four entries, as B fragment registers; 0 for an empty
/// slot. Free of branches. Tokens past the block's end repeat its last one: their results are not
/// stored.
__device__ __forceinline__ void gather_x(std::uint32_t (&b)[2], const LaneEntries& e,
                                         const TokenBlock& block, int token) {
  const std::uint16_t* row = block.x + min(token, block.tokens - 1) * block.row_stride;
  std::uint32_t value[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    value[i] = __ldg(row + e.k[i]);  // k is 0 in an empty slot
    value[i] = e.row[i] == format::unused_row ? 0u : value[i];
  }
  b[0] = __byte_perm(value[0], value[1], 0x5410);
  b[1] = __byte_perm(value[2], value[3], 0x5410);
}

/// A fragment with `value` in the row of every entry.
__device__ __forceinline__ void stand_in_fragment(std::uint32_t (&a)[4], const LaneEntries& e,
                                                  std::uint32_t value, int lane) {
  const std::uint32_t values[4] = {value, value, value, value};
  sparse_fragment(a, e, values, lane);
}

/// Both accumulators of one row tile for 8 * TokenTiles tokens, by one warp; the layout is that of
/// mma_m16n8k16. Adds to what is there.
template <int TokenTiles>
__device__ __forceinline__ void accumulate_exceptions(float (&stand_ins)[TokenTiles][4],
                                                      float (&true_weights)[TokenTiles][4],
                                                      const ExceptionView& view,
                                                      std::uint32_t row_tile,
                                                      const TokenBlock& block, int lane) {
  const std::uint32_t begin = __ldg(view.extra_begin + row_tile);
  const std::uint32_t count = 1 + __ldg(view.extra_begin + row_tile + 1) - begin;
  const format::ExceptionGroup* group = view.groups + row_tile;
  std::uint32_t i = 0;
  do {  // the first group does not wait for `count`
    const LaneEntries entries = load_entries(group, lane);
    group = view.groups + view.row_tiles + begin + i;
    if (__all_sync(0xFFFFFFFFu, entries.row[0] == format::unused_row)) break;  // an empty group
    std::uint32_t a_stand_in[4];
    std::uint32_t a_true[4];
    stand_in_fragment(a_stand_in, entries, format::decoded_stand_in, lane);
    sparse_fragment(a_true, entries, entries.bits, lane);
    std::uint32_t b[TokenTiles][2];
#pragma unroll
    for (int t = 0; t < TokenTiles; ++t) gather_x(b[t], entries, block, 8 * t + lane / 4);
#pragma unroll
    for (int t = 0; t < TokenTiles; ++t) {
      ptx::mma_m16n8k16(stand_ins[t], a_stand_in, b[t][0], b[t][1]);
      ptx::mma_m16n8k16(true_weights[t], a_true, b[t][0], b[t][1]);
    }
  } while (++i < count);
}

}  // namespace slimgemm::cuda
