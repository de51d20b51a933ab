// SPDX-License-Identifier: Apache-2.0
// Exceptions of a row tile on the tensor cores, beside the stream of the weights.
//
// An exception's slot in the tile decodes to the stand-in, 2^(window_base - 127). The main sum
// therefore holds stand_in * x[k] in its place. A group of 16 exceptions is one more k16 step:
// column j of its A fragment has a single nonzero, in the row of exception j, and row j of B is x
// at its k. Two accumulators come of it,
//
//   stand_ins = sum of stand_in * x[k]        true_weights = sum of w * x[k]
//
// and the result is (main - stand_ins) + true_weights. The two are kept apart so that the stand-in
// cancels exactly where it is all there is: a row of x with one nonzero entry gives back the
// weight's bits, however small or large the weight is against the window.
#pragma once

#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/stream_kernel_args.hpp"
#include "format/layout.hpp"

#include <cstdint>

namespace slimgemm::cuda {

/// x of one token block: `tokens` >= 1 rows.
struct TokenBlock {
  const unsigned char* x;
  std::uint32_t stride_bytes;
  int tokens;
};

/// The four entries whose columns a lane holds in A and B fragments: 2t, 2t + 1, 2t + 8, 2t + 9.
struct LaneEntries {
  std::uint32_t k[4];
  std::uint32_t tail[4];  // has_more << 24 | row << 16 | bits

  __device__ __forceinline__ std::uint32_t row(int i) const { return tail[i] >> 16 & 0xFF; }
  __device__ __forceinline__ bool used(int i) const { return row(i) != format::unused_row; }
  /// Entries fill a group front to back.
  __device__ __forceinline__ bool empty_group() const { return __all_sync(0xFFFFFFFFu, !used(0)); }
};

__device__ __forceinline__ LaneEntries load_entries(const format::ExceptionGroup* group, int lane) {
  const auto* pairs = reinterpret_cast<const uint4*>(group);  // two entries each
  const uint4 low = __ldg(pairs + lane % 4);
  const uint4 high = __ldg(pairs + lane % 4 + 4);
  return {{low.x, low.z, high.x, high.z}, {low.y, low.w, high.y, high.w}};
}

__device__ __forceinline__ LaneEntries no_entries() {
  constexpr std::uint32_t unused = std::uint32_t{format::unused_row} << 16;
  return {{0, 0, 0, 0}, {unused, unused, unused, unused}};
}

/// x at the exceptions of a group, as B fragment registers of TokenTiles token tiles.
template <int TokenTiles>
struct GatheredX {
  std::uint32_t b[TokenTiles][2];

  /// Past L1: with programmatic launches x may be written while this grid is already there.
  __device__ __forceinline__ void load(const LaneEntries& e, const TokenBlock& block, int lane) {
    gather(e, block.tokens, lane, [&](int token) {
      const auto* row = reinterpret_cast<const std::uint16_t*>(
          block.x + static_cast<std::uint64_t>(token) * block.stride_bytes);
      return [row](std::uint32_t k) { return __ldcg(row + k); };
    });
  }

  /// From shared memory: `at` gives the address of an element.
  template <class At>
  __device__ __forceinline__ void load_shared(const LaneEntries& e, int tokens, int lane, At at) {
    gather(e, tokens, lane, [&](int token) {
      return [&at, token](std::uint32_t k) { return ptx::load_shared_2(at(token, k)); };
    });
  }

 private:
  /// Free of branches, so that all loads are in flight together. Tokens past the block's end repeat
  /// its last one: their results are not stored. row_of(token) gives what fetches its element k.
  template <class RowOf>
  __device__ __forceinline__ void gather(const LaneEntries& e, int tokens, int lane, RowOf row_of) {
#pragma unroll
    for (int t = 0; t < TokenTiles; ++t) {
      const auto fetch = row_of(min(8 * t + lane / 4, tokens - 1));
      std::uint32_t value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) value[i] = e.used(i) ? fetch(e.k[i]) : 0u;
      b[t][0] = __byte_perm(value[0], value[1], 0x5410);
      b[t][1] = __byte_perm(value[2], value[3], 0x5410);
    }
  }
};

/// The exceptions of one row tile, accumulated by one warp.
template <int TokenTiles>
struct ExceptionSums {
  float stand_ins[TokenTiles][4] = {};
  float true_weights[TokenTiles][4] = {};

  __device__ __forceinline__ void add(const LaneEntries& entries, const GatheredX<TokenTiles>& x,
                                      std::uint32_t stand_in, int lane) {
    std::uint32_t a_stand_in[4];
    std::uint32_t a_true[4];
    fragment(a_stand_in, entries, lane, [&](int) { return stand_in; });
    fragment(a_true, entries, lane, [&](int i) { return entries.tail[i] & 0xFFFF; });
#pragma unroll
    for (int t = 0; t < TokenTiles; ++t) {
      ptx::mma_m16n8k16(stand_ins[t], a_stand_in, x.b[t][0], x.b[t][1]);
      ptx::mma_m16n8k16(true_weights[t], a_true, x.b[t][0], x.b[t][1]);
    }
  }

  /// Adds a group that is at hand.
  __device__ __forceinline__ void add(const LaneEntries& entries, const TokenBlock& block,
                                      std::uint32_t stand_in, int lane) {
    GatheredX<TokenTiles> x;
    x.load(entries, block, lane);
    add(entries, x, stand_in, lane);
  }

  /// Adds the groups after the head, several at a time.
  __device__ __forceinline__ void add_more(const ExceptionView& view, const ExceptionHead* head,
                                           const TokenBlock& block, std::uint32_t stand_in,
                                           int lane) {
    constexpr int batch = TokenTiles == 1 ? 4 : TokenTiles == 2 ? 2 : 1;
    const std::uint32_t end = __ldg(&head->more_end);
#pragma unroll 1
    for (std::uint32_t i = __ldg(&head->more_begin); i < end; i += batch) {
      LaneEntries entries[batch];
      GatheredX<TokenTiles> x[batch];
#pragma unroll
      for (int g = 0; g < batch; ++g) {
        entries[g] = i + g < end ? load_entries(view.more + i + g, lane) : no_entries();
      }
#pragma unroll
      for (int g = 0; g < batch; ++g) x[g].load(entries[g], block, lane);
#pragma unroll
      for (int g = 0; g < batch; ++g) add(entries[g], x[g], stand_in, lane);
    }
  }

 private:
  /// A fragment with value(i) where entry i's row is this lane's row, else 0.
  template <class Value>
  __device__ __forceinline__ static void fragment(std::uint32_t (&a)[4], const LaneEntries& e,
                                                  int lane, Value value) {
    const std::uint32_t g = lane / 4;
    const auto pick = [&](int i, std::uint32_t row) { return e.row(i) == row ? value(i) : 0u; };
    a[0] = pick(0, g) | pick(1, g) << 16;
    a[1] = pick(0, g + 8) | pick(1, g + 8) << 16;
    a[2] = pick(2, g) | pick(3, g) << 16;
    a[3] = pick(2, g + 8) | pick(3, g + 8) << 16;
  }
};

}  // namespace slimgemm::cuda
