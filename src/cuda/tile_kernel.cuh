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
//   stmatrix to a staging tile [token][feature], 16-byte stores (persistent kernels: TMA)
//
// Roles: warpgroups 0 .. n-1 consume; each of their lanes copies the weight bytes that it decodes
// itself, so that cp.async.wait_group is all that weights wait for. One more warp copies x. Every
// slot of x has a full barrier (bytes) and an empty barrier (an arrival for each warp that reads
// it). A warpgroup decodes k tile i + 1 while the tensor cores work on k tile i: two sets of
// fragments, at most one group of wgmma in flight when the older set is overwritten.
//
// FP32 weights: one set of fragments, three BF16 terms a weight, no exceptions, FP32 stores without
// a staging tile.
//
// Large tiles (plan::moves_registers): x is copied by a warpgroup that gives up most of its
// registers. Most of them, where no cluster splits k, are persistent (plan::is_persistent): a CTA
// goes through tiles, and its rings do not stop between them. A warpgroup leaves its sums in a
// staging tile of its own, from where another warp stores them (tile_store.cuh), and goes on: the
// next tile's weights and exceptions have been asked for in its main loop. Some share x
// (plan::TileConfig::x_sharers): the two CTAs of a cluster have neighbouring rows, and each copies
// half of an x tile to both (TMA multicast).
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile_consumer.cuh"
#include "cuda/tile_epilogue.cuh"
#include "cuda/tile_exceptions.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/tile_schedule.cuh"
#include "cuda/tile_store.cuh"
#include "plan/kernel_table.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace slimgemm::cuda {

/// The warp that copies x, one lane of it. Rows past the CTA's tokens keep what they had: columns
/// of B that are not stored.
template <plan::TileConfig C>
struct TileXCopy {
  static constexpr int first_stages = plan::first_x_stages(C);

  const TileArgs& args;
  const TileShare& share;
  std::uint32_t smem;
  TileBarriers<C>& barriers;

  __device__ __forceinline__ void copy(const TileShare& tile, int k_tile, int slot) const {
    const std::uint32_t full = ptx::shared_address(&barriers.x_full[slot]);
    const std::uint32_t to = smem + plan::tile_layout(C).x + slot * C.tokens * 128;
    const auto token = static_cast<int>(tile.token);
    if constexpr (C.x_sharers == 1) {
      ptx::mbarrier_arrive_expect(full, args.x_rows * 128);
      ptx::tma_load_3d(to, &args.x_map, 0, token, tile.k_tile_begin + k_tile, full);
    } else {  // a part of it for all; the other parts come from the other CTAs
      const int rows = plan::x_box_rows(C, static_cast<int>(args.x_rows));
      const int first = static_cast<int>(ptx::cluster_rank()) * rows;
      ptx::mbarrier_arrive_expect(full, C.x_sharers * rows * 128);
      ptx::tma_load_3d_multicast(to + first * 128, &args.x_map, 0, token + first,
                                 tile.k_tile_begin + k_tile, full, (1u << C.x_sharers) - 1);
    }
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
#pragma unroll 1
      for (int i = first_tile<C>() + tile_stride<C>(); find_tile<C>(args, i, next);
           i += tile_stride<C>()) {
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
    ptx::mbarrier_init(ptx::shared_address(&empty), 4 * C.row_blocks * C.x_sharers);
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

/// A consumer warpgroup's tile.
template <plan::TileConfig C, class Consumer, class Exceptions>
__device__ __forceinline__ void consume_tile(Consumer& consumer, Exceptions& exceptions,
                                             const TileShare& share, int warpgroup) {
  float sums[C.tokens / 2] = {};
  consumer.begin(exceptions);
  consumer.run(sums, exceptions, [] {});
  if constexpr (C.cluster > 1) ptx::cluster_wait();
  TileEpilogue<C>{consumer.args, share,     consumer.barriers,
                  consumer.smem, warpgroup, static_cast<int>(threadIdx.x % 128)}
      .run(sums);
}

/// Its tiles in a persistent kernel.
template <plan::TileConfig C, class Consumer, class Exceptions>
__device__ __forceinline__ void consume_tiles(Consumer& consumer, Exceptions& exceptions,
                                              TileShare share, int warp) {
  int next = first_tile<C>();
  const auto find_next = [&] {
    next += tile_stride<C>();
    consumer.next_row_tile = find_tile<C>(consumer.args, next, share)
                                 ? packed_row_tile<C>(consumer.args, share, warp)
                                 : nullptr;
  };
  find_next();
  consumer.begin(exceptions);
  bool more = true;
#pragma unroll 1
  while (more) {
    float sums[C.tokens / 2] = {};
    consumer.run(sums, exceptions, [&] {
      more = consumer.next_row_tile != nullptr;
      if (!more) return;
      find_next();
      exceptions.start_next();
    });
    StagingTile<C>(consumer.smem, warp / 4).fill(sums, static_cast<int>(ptx::thread_index() % 128));
  }
}

/// The warps that do not multiply: the first copies x, in a persistent kernel those after it store.
template <plan::TileConfig C>
__device__ __forceinline__ void copy_and_store(const TileXCopy<C>& x_copy, int warp, int lane) {
  if constexpr (plan::moves_registers(C)) ptx::fewer_registers<plan::copy_registers(C)>();
  if (warp == 0 && lane == 0) {
    if constexpr (C.x_sharers > 1) x_copy.start();
    x_copy.run();
  }
  __syncwarp();
  if constexpr (plan::is_persistent(C)) {
    const int stored = warp - 1;  // warpgroup
    if (stored >= 0 && stored < plan::warpgroups(C)) {
      TileStore<C>{x_copy.args, x_copy.share, StagingTile<C>(x_copy.smem, stored), lane}.run();
    }
  }
  if constexpr (C.cluster > 1) ptx::cluster_wait();
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
    if constexpr (C.x_sharers == 1) x_copy.start();
    init_other_barriers<C>(barriers, share.rank);
  }
  if (absent) {
    ptx::cp_async_wait<0>();
    return;
  }
  __syncwarp();
  __syncthreads();  // barriers are initialised, here and (cluster_wait) in the others
  if constexpr (C.cluster > 1 || C.x_sharers > 1) ptx::cluster_arrive_relaxed();
  if constexpr (C.x_sharers > 1) ptx::cluster_wait();

  if (warp < x_warp) {
    if constexpr (plan::moves_registers(C)) {
      ptx::more_registers<plan::consumer_registers(C)>();
    }
    Consumer consumer(args, share, barriers, smem, warp, lane, weights);
    Exceptions exceptions(args.exceptions, share, heads_of<C>(smem, static_cast<unsigned>(warp)),
                          stand_in_bits(args.decode.window), lane);
    if constexpr (plan::is_persistent(C)) {
      consume_tiles<C>(consumer, exceptions, share, warp);
    } else {
      consume_tile<C>(consumer, exceptions, share, warp / 4);
    }
  } else {
    copy_and_store<C>(x_copy, warp - x_warp, lane);
  }
  // No closing cluster barrier where k is split: a warpgroup leaves when all that is sent to it has
  // arrived. Where x is shared, the others may still copy and release x here.
  if constexpr (C.x_sharers > 1) {
    __syncwarp();
    ptx::cluster_arrive();
    ptx::cluster_wait();
  }
}

}  // namespace slimgemm::cuda
