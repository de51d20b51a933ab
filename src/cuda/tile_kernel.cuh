// SPDX-License-Identifier: Apache-2.0
// The tile kernel: a linear layer for more tokens (from about 32), on the tensor cores at full
// rate.
//
//   packed tiles                                  x (m x K)
//     | cp.async, 16 bytes a lane                  | TMA box {64 k, x_rows}, 128-byte swizzle
//     v                                            v
//   a warp's own ring of w_stages                ring of x_stages, for all
//     | ld.shared, decode in registers, exceptions |
//     v overwritten (tile_exceptions.cuh)          v
//   wgmma m64nNk16: A = 64 decoded weight rows from registers, B = x from shared memory
//     |
//     v  FP32 sums of 64 features x tokens in each warpgroup
//   k groups of a CTA swap halves of the tokens in shared memory, CTAs of a cluster send each other
//   the tokens that the other owns (st.async, an mbarrier a warpgroup and step); each adds in fixed
//   order
//     v
//   stmatrix to a staging tile [token][feature], 16-byte stores
//
// Roles: warpgroups 0 .. n-1 consume; each of their lanes copies the weight bytes that it decodes
// itself, so that cp.async.wait_group is all that weights wait for. One more warp copies x. Every
// slot of x has a full barrier (bytes) and an empty barrier (an arrival for each warp that reads
// it). A warpgroup decodes k tile i + 1 while the tensor cores work on k tile i: two sets of
// fragments, at most one group of wgmma in flight when the older set is overwritten.
//
// FP32 weights: one set of fragments, three BF16 terms a weight, no exceptions, FP32 stores without
// a staging tile. Tiles of 128 x 256 and of 192 rows: x is copied by a warpgroup that gives up most
// of its registers, and where no cluster splits k the kernel is persistent: a CTA asks for the
// weights of its next tile before it stores, by way of a staging tile of its own, and x is copied
// on.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile_consumer.cuh"
#include "cuda/tile_epilogue.cuh"
#include "cuda/tile_exceptions.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "plan/kernel_table.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace slimgemm::cuda {

/// Of a persistent kernel: tile `index` of the call, false past the last. Token blocks in groups,
/// as in tile_share.
template <plan::TileConfig C>
__device__ __forceinline__ bool find_tile(const TileArgs& args, int index, TileShare& share) {
  if (index >= args.token_blocks * args.row_groups) return false;
  const int group_tiles = args.token_group * args.row_groups;
  const int first_token_block = index / group_tiles * args.token_group;
  const int in_group = index % group_tiles;
  const int token_blocks = min(args.token_group, args.token_blocks - first_token_block);
  share.row_tile = args.first_row_tile + in_group / token_blocks * C.row_blocks * 4;
  share.token = static_cast<unsigned>(first_token_block + in_group % token_blocks) * args.x_rows;
  return true;
}

template <plan::TileConfig C>
__device__ __forceinline__ TileShare tile_share(const TileArgs& args) {
  TileShare share;
  share.rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const auto k_tiles = static_cast<unsigned>(args.k_tiles);  // of 64, so that products fit
  share.k_tile_begin = static_cast<int>(k_tiles * share.rank / C.cluster);
  share.k_tiles = static_cast<int>(k_tiles * (share.rank + 1) / C.cluster) - share.k_tile_begin;
  share.last_row_tile = args.last_row_tile;
  if constexpr (plan::is_persistent(C)) {
    find_tile<C>(args, static_cast<int>(blockIdx.x), share);
    return share;
  }
  // Token blocks in groups, all rows for one group before the next: a wave's x stays in L2.
  const unsigned group_blocks = gridDim.x / C.cluster;
  unsigned token_block = blockIdx.x / C.cluster;
  unsigned row_group = blockIdx.y;
  if constexpr (C.encoding == Encoding::raw32) {
    // A token block's rows side by side: clusters go to the GPCs in turn, and the second one of a
    // GPC reads what the first one reads when both have the same rows.
    const unsigned index = row_group * group_blocks + token_block;
    token_block = index / gridDim.y;
    row_group = index % gridDim.y;
  }
  share.row_tile = args.first_row_tile + static_cast<int>(row_group) * C.row_blocks * 4;
  share.token = (blockIdx.z * group_blocks + token_block) * args.x_rows;
  return share;
}

/// The warp that copies x, one lane of it. Rows past the CTA's tokens keep what they had: columns
/// of B that are not stored.
template <plan::TileConfig C>
struct TileXCopy {
  static constexpr int first_stages = plan::first_x_stages(C);

  const TileArgs& args;
  const TileShare& share;
  std::uint32_t ring;
  TileBarriers<C>& barriers;

  __device__ __forceinline__ void copy(const TileShare& tile, int k_tile, int slot) const {
    const std::uint32_t full = ptx::shared_address(&barriers.x_full[slot]);
    ptx::mbarrier_arrive_expect(full, args.x_rows * 128);
    ptx::tma_load_3d(ring + slot * C.tokens * 128, &args.x_map, 0, static_cast<int>(tile.token),
                     tile.k_tile_begin + k_tile, full);
  }
  /// Asks for the first k tiles.
  __device__ __forceinline__ void start() const { fill(0, first_stages); }
  /// And for all the others, of a persistent kernel those of further tiles, too. If the kernel
  /// starts small, when the first one has arrived.
  __device__ __forceinline__ void run() const {
    if constexpr (plan::starts_small(C)) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_full[0]), 0);
    }
    fill(first_stages, C.x_stages);
    RingPosition<C.x_stages> at{0};
    if constexpr (plan::is_persistent(C)) at = after_fill();
    copy_from(share, C.x_stages, at);
    if constexpr (plan::is_persistent(C)) {
      TileShare next = share;
      int index = static_cast<int>(blockIdx.x + gridDim.x);
#pragma unroll 1
      for (; find_tile<C>(args, index, next); index += static_cast<int>(gridDim.x)) {
        copy_from(next, 0, at);
      }
    }
  }

 private:
  __device__ __forceinline__ void fill(int first, int end) const {
#pragma unroll 1
    for (int i = first; i < min(end, share.k_tiles); ++i) copy(share, i, i);
  }
  /// The slot after those that fill() used, and the parity of its release. A slot that fill() left
  /// is free: the phase before its barrier's first has the other parity.
  __device__ __forceinline__ RingPosition<C.x_stages> after_fill() const {
    if (share.k_tiles >= C.x_stages) return {0, 0};
    return {share.k_tiles, 1};
  }
  __device__ __forceinline__ void copy_from(const TileShare& tile, int first,
                                            RingPosition<C.x_stages>& at) const {
#pragma unroll 1
    for (int i = first; i < tile.k_tiles; ++i) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_empty[at.slot]), at.parity);
      copy(tile, i, at.slot);
      at.advance(1);
    }
  }
};

/// What the first copies of x need.
template <plan::TileConfig C>
__device__ __forceinline__ void init_first_barriers(TileBarriers<C>& barriers) {
  for (int i = 0; i < plan::first_x_stages(C); ++i) {
    ptx::mbarrier_init(ptx::shared_address(&barriers.x_full[i]), 1);
  }
  ptx::fence_mbarrier_init();
}

template <plan::TileConfig C>
__device__ __forceinline__ void init_other_barriers(TileBarriers<C>& barriers, std::uint32_t rank) {
  for (int i = plan::first_x_stages(C); i < C.x_stages; ++i) {
    ptx::mbarrier_init(ptx::shared_address(&barriers.x_full[i]), 1);
  }
  for (auto& empty : barriers.x_empty) {
    ptx::mbarrier_init(ptx::shared_address(&empty), 4 * C.row_blocks);
  }
  if constexpr (C.cluster > 1) {
    for (auto& of_warpgroup : barriers.received) {
      for (auto& received : of_warpgroup) ptx::mbarrier_init(ptx::shared_address(&received), 1);
    }
  }
  ptx::fence_mbarrier_init();
  if constexpr (C.cluster > 1) {
    const int units = plan::first_unit(C, static_cast<int>(rank) + 1) -
                      plan::first_unit(C, static_cast<int>(rank));
    for (auto& of_warpgroup : barriers.received) {
      int left = units;
      for (auto& received : of_warpgroup) {
        const int of_step = min(left, plan::step_units(C));
        ptx::mbarrier_arrive_expect(ptx::shared_address(&received),
                                    (C.cluster - 1) * of_step * 128 * 16);
        left -= of_step;
      }
    }
  }
}

/// A consumer warpgroup's tiles: one, or of a persistent kernel every gridDim.x-th.
template <plan::TileConfig C, class Consumer, class Exceptions>
__device__ __forceinline__ void consume_tiles(Consumer& consumer, Exceptions& exceptions,
                                              const TileShare& share, int warpgroup) {
  TileShare next = share;
  bool more = true;
#pragma unroll 1
  for (int index = static_cast<int>(blockIdx.x + gridDim.x); more;
       index += static_cast<int>(gridDim.x)) {
    float sums[C.tokens / 2] = {};
    consumer.run(sums, exceptions);
    if constexpr (C.cluster > 1) ptx::cluster_wait();
    const TileShare done = next;
    more = plan::is_persistent(C) && find_tile<C>(consumer.args, index, next);
    // Persistent kernels have no register for what is not needed in the main loop, and what is kept
    // in local memory comes late, behind stores.
    const unsigned thread = plan::is_persistent(C) ? ptx::thread_index() : threadIdx.x;
    if (more) {  // its copies are in flight while this tile is stored
      consumer.open(next);
      consumer.weights.thread = thread;
      consumer.weights.open(consumer.args, next);
      __syncwarp();  // all lanes have read the exceptions before
      consumer.weights.template start<Exceptions>(consumer.args, next, consumer.smem);
    }
    TileEpilogue<C>{consumer.args,
                    done,
                    consumer.barriers,
                    consumer.smem,
                    plan::is_persistent(C) ? static_cast<int>(thread / 128) : warpgroup,
                    static_cast<int>(thread % 128)}
        .run(sums);
  }
}

/// Index: entry of plan::tile_table.
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::tile_table[Index]), 1)
    tile_kernel(const __grid_constant__ TileArgs args) {
  constexpr plan::TileConfig C = plan::tile_table[Index];
  constexpr plan::TileLayout layout = plan::tile_layout(C);
  constexpr int x_warp = 4 * plan::warpgroups(C);
  extern __shared__ __align__(1024) unsigned char smem_bytes[];
  auto& barriers = *reinterpret_cast<TileBarriers<C>*>(smem_bytes + layout.barriers);
  const std::uint32_t smem = ptx::shared_address(smem_bytes);

  const unsigned thread = threadIdx.x;
  const TileShare share = tile_share<C>(args);
  if (args.dependent) ptx::launch_dependents();
  // The last group may have fewer token blocks. To leave only after the first copies lets them
  // start earlier.
  const bool absent = !plan::is_persistent(C) && share.token >= args.m;

  // First of all, each role asks for what it needs first.
  TileWeightCopy<C> weights(args, share, smem, thread);
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(thread / 32), 0);
  const int lane = static_cast<int>(thread % 32);
  using Exceptions =
      std::conditional_t<plan::has_exceptions(C), TileExceptions<C>, NoTileExceptions>;
  using Consumer =
      std::conditional_t<C.encoding == Encoding::raw32, TileTermsConsumer<C>, TileConsumer<C>>;
  const TileXCopy<C> x_copy{args, share, smem, barriers};
  if (thread < 32 * x_warp) {
    weights.template start<Exceptions>(args, share, smem);
  } else if (thread == 32 * x_warp && !absent) {
    ptx::prefetch_tensor_map(&args.x_map);
    init_first_barriers<C>(barriers);
    if (args.dependent) ptx::grid_dependency_wait();
    x_copy.start();
    init_other_barriers<C>(barriers, share.rank);
  }
  if (absent) {
    ptx::cp_async_wait<0>();
    return;
  }
  __syncwarp();
  __syncthreads();  // barriers are initialised, here and (cluster_wait) in the others
  if constexpr (C.cluster > 1) ptx::cluster_arrive_relaxed();

  if (warp < x_warp) {
    if constexpr (plan::moves_registers(C)) {
      ptx::more_registers<plan::consumer_registers(C)>();
    }
    Consumer consumer(args, share, barriers, smem, warp, lane, weights);
    Exceptions exceptions(args.exceptions, share,
                          smem + layout.heads + warp * plan::exception_head_bytes,
                          stand_in_bits(args.decode.window), lane);
    consume_tiles<C>(consumer, exceptions, share, warp / 4);
  } else {
    if constexpr (plan::moves_registers(C)) ptx::fewer_registers<plan::copy_registers(C)>();
    if (warp == x_warp && lane == 0) x_copy.run();
    __syncwarp();
    if constexpr (C.cluster > 1) ptx::cluster_wait();
  }
  // No closing cluster barrier: a warpgroup leaves when all that is sent to it has arrived.
}

}  // namespace slimgemm::cuda
