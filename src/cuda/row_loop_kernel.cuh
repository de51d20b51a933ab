// SPDX-License-Identifier: Apache-2.0
// The stream kernel for short K: a CTA goes through several groups of row tiles.
//
// With K = 512 a warp of the stream kernel has one or two k tiles. A CTA is over before its first
// bytes have paid off, and x is copied again by the next. Here the grid is as large as the GPU
// holds. A CTA takes every gridDim.x-th group; its warps' rings run on from one group into the
// next, so that weights stream while sums meet; and x is copied once and stays. Two sets of sums in
// turn make one CTA barrier a group enough: who writes a set has passed the barrier after which the
// others read the other one.
#pragma once

#include "cuda/stream_kernel.cuh"

namespace slimgemm::cuda {

template <plan::StreamConfig C>
struct RowLoopConsumer : StreamConsumer<C> {
  using Base = StreamConsumer<C>;

  int groups_left;    // to ask for
  int row_tile;       // of the group that is asked for
  int row_tile_step;  // from a group to the next
  int step = 0;       // k tile to ask for
  int stage = 0;      // where it goes
  bool first = true;  // group: x is copied with it

  __device__ __forceinline__ RowLoopConsumer(const StreamArgs& args, const StreamShare& share,
                                             std::uint32_t smem, unsigned warp, unsigned lane,
                                             int groups, int row_tile_step)
      : Base(args, share, smem, warp, lane),
        groups_left(Base::steps > 0 ? groups : 0),
        row_tile(share.row_tile),
        row_tile_step(row_tile_step) {}

  __device__ __forceinline__ void advance() {
    if (++stage == C.stages) stage = 0;
    if (++step < Base::steps) return;
    step = 0;
    first = false;
    --groups_left;
    row_tile += row_tile_step;
    if (groups_left > 0) Base::point_at(row_tile);
  }

  /// Asks for the next k tile and closes a cp.async group.
  template <bool Whole>
  __device__ __forceinline__ void fetch_next() {
    if (groups_left > 0) {
      Base::fetch_weights(step, stage);
      if (first) Base::template fetch_x<Whole>(step, step);
      advance();
    }
    ptx::cp_async_commit();
  }

  /// Fills the ring for the first time. The first weights are on their way.
  template <bool Whole>
  __device__ __forceinline__ void start() {
    if (Base::args.dependent) ptx::grid_dependency_wait();
    if (groups_left > 0) {
      Base::template fetch_x<Whole>(0, 0);
      advance();
    }
    ptx::cp_async_commit();
#pragma unroll 1
    for (int s = 1; s < C.stages; ++s) fetch_next<Whole>();
  }

  /// All k tiles of one group; `at` is the ring's stage.
  template <bool Whole>
  __device__ __forceinline__ void multiply_group(int& at,
                                                 const std::uint32_t (&x_line)[C.token_tiles]) {
#pragma unroll
    for (auto& row : Base::sums) {
      for (auto& unit : row) {
        for (float& sum : unit) sum = 0;
      }
    }
#pragma unroll 1
    for (int k = 0; k < Base::steps; ++k) {
      ptx::cp_async_wait<C.stages - 1>();
      __syncwarp();  // the other lanes' x
      Base::template multiply<false>(at, k, x_line);
      __syncwarp();  // every lane has read the stage
      fetch_next<Whole>();
      if (++at == C.stages) at = 0;
    }
  }
};

/// A CTA's way through its groups: every warp computes its part of a group, meets the others, and
/// adds its share of the sums.
template <plan::StreamConfig C>
struct RowLoop {
  static constexpr int partials_bytes = C.k_warps * plan::units(C) * plan::stream_unit_bytes;
  static constexpr int corrections_bytes =
      plan::has_exceptions(C) ? 2 * plan::units(C) * plan::stream_unit_bytes : 0;

  const StreamArgs& args;
  std::uint32_t smem;
  int warp;
  int lane;
  int groups;         // of this CTA
  int row_tile_step;  // from a group to the next

  /// compute(epilogue, share) leaves this warp's part of the group in the epilogue's set of sums.
  template <class Compute>
  __device__ __forceinline__ void run(StreamShare share, Compute compute) const {
    StreamEpilogue<C> epilogue{args, share, smem, args.layout.partials, args.layout.corrections,
                               warp, lane};
#pragma unroll 1
    for (int g = 0; g < groups; ++g) {
      epilogue.partials = args.layout.partials + g % 2 * partials_bytes;
      epilogue.corrections = args.layout.corrections + g % 2 * corrections_bytes;
      compute(epilogue, share);
      __syncthreads();
      epilogue.reduce_and_store();
      share.row_tile += row_tile_step;
    }
  }

  template <bool Whole>
  __device__ __forceinline__ void consume(const StreamShare& share) const {
    RowLoopConsumer<C> consumer(args, share, smem, warp, lane, groups, row_tile_step);
    consumer.template start<Whole>();
    std::uint32_t x_line[C.token_tiles];
    consumer.find_x_lines(x_line);
    int at = 0;
    run(share, [&](const StreamEpilogue<C>& epilogue, const StreamShare&) {
      consumer.template multiply_group<Whole>(at, x_line);
      epilogue.store_partials(consumer.sums);
    });
  }

  __device__ __forceinline__ void add_exceptions(const StreamShare& share) const {
    run(share, [&](const StreamEpilogue<C>& epilogue, const StreamShare& group) {
      StreamExceptions<C>{args, group, smem + epilogue.corrections, warp - C.k_warps, lane}.run();
    });
  }
};

/// Index: entry of plan::stream_table with a row loop.
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::stream_table[Index]),
                                  plan::stream_table[Index].min_ctas)
    row_loop_kernel(const __grid_constant__ StreamArgs args) {
  constexpr plan::StreamConfig C = plan::stream_table[Index];
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const StreamShare share = stream_share<C>(args);
  const int step = static_cast<int>(gridDim.x) * C.row_tiles;
  const int groups = (args.last_row_tile - share.row_tile) / step + 1;
  const RowLoop<C> loop{args, ptx::shared_address(shared), warp, lane, groups, step};
  if (args.dependent) ptx::launch_dependents();

  if (warp < C.k_warps) [[likely]] {
    if (args.k % format::tile_k == 0) {
      loop.template consume<true>(share);
    } else {
      loop.template consume<false>(share);
    }
  } else if constexpr (plan::has_exceptions(C)) {
    loop.add_exceptions(share);
  }
}

}  // namespace slimgemm::cuda
