// SPDX-License-Identifier: Apache-2.0
// The end of a tile in a persistent kernel (tile_kernel.cuh shows the whole). A warpgroup leaves
// its sums as BF16 in a staging tile and goes on to its next tile; a warp of the warpgroup that
// copies stores what was staged, one such warp for each warpgroup. Two named barriers: free and
// full.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/tile_schedule.cuh"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <cstdint>

namespace slimgemm::cuda {

/// Where a warpgroup leaves a tile: BF16 [unit of 8 tokens][8 tokens][64 features], swizzled as TMA
/// does it.
template <plan::TileConfig C>
struct StagingTile {
  static constexpr int units = C.tokens / 8;
  static constexpr int threads = 128 + 32;  // of its barriers: who fills it, who stores it

  const int warpgroup;
  const std::uint32_t address;

  __device__ __forceinline__ StagingTile(std::uint32_t smem, int warpgroup)
      : warpgroup(warpgroup),
        address(smem + plan::tile_layout(C).staging + warpgroup * plan::staging_bytes(C)) {}

  /// Where 8 features of a token lie; chunk: first feature / 8.
  __device__ __forceinline__ std::uint32_t chunk(int token, int chunk) const {
    return address + token * 128 + (chunk ^ token % 8) * 16;
  }

  /// By all threads of the warpgroup.
  __device__ __forceinline__ void fill(const float (&sums)[C.tokens / 2], int thread) const {
    const int lane = thread % 32;
    // Lanes 0 to 15 address the two matrices of a unit, the others those of the next.
    const std::uint32_t to = chunk(lane % 8 + lane / 16 * 8, thread / 32 * 2 + lane / 8 % 2);
    ptx::named_barrier_sync(plan::staging_free_barrier(warpgroup), threads);
#pragma unroll
    for (int u = 0; u < units; u += 2) {
      const float* const v = sums + 4 * u;
      ptx::stmatrix_x4_trans(to + u * plan::staging_unit_bytes, ptx::bf16_pair(v[0], v[1]),
                             ptx::bf16_pair(v[2], v[3]), ptx::bf16_pair(v[4], v[5]),
                             ptx::bf16_pair(v[6], v[7]));
    }
    ptx::named_barrier_arrive(plan::staging_full_barrier(warpgroup), threads);
  }
};

/// The warp that stores a warpgroup's staging tile.
template <plan::TileConfig C>
struct TileStore {
  const TileArgs& args;
  const TileShare& first;
  StagingTile<C> staging;
  int lane;

  __device__ __forceinline__ void run() const {
    TileShare tile = first;
#pragma unroll 1
    for (int i = first_tile<C>(); find_tile<C>(args, i, tile); i += tile_stride<C>()) {
      ptx::named_barrier_arrive(plan::staging_free_barrier(staging.warpgroup), staging.threads);
      ptx::named_barrier_sync(plan::staging_full_barrier(staging.warpgroup), staging.threads);
      const std::uint32_t feature =
          static_cast<std::uint32_t>(tile.row_tile - args.first_row_tile) * format::tile_rows +
          staging.warpgroup * 64;
      const std::uint32_t tokens = min(args.x_rows, args.m - tile.token);
      if (feature < args.rows) {
        if (args.out_vectors) {
          if (lane == 0) store_boxes(tile.token, tokens, feature);
        } else {
          store_elements(tile.token, tokens, feature);
        }
      }
      __syncwarp();
    }
  }

 private:
  __device__ __forceinline__ void store_boxes(std::uint32_t token, std::uint32_t tokens,
                                              std::uint32_t feature) const {
    // The warpgroup's writes, its barrier, this fence, then the copies: that orders them. Before
    // the barrier the fence would hold up the warpgroup until its copies of weights are there.
    ptx::fence_shared_for_tma();
#pragma unroll 1
    for (std::uint32_t t = 0; t < tokens; t += 8) {
      ptx::tma_store_2d(&args.out_map, static_cast<int>(feature), static_cast<int>(token + t),
                        staging.address + t / 8 * plan::staging_unit_bytes);
    }
    ptx::tma_commit();
    ptx::tma_wait_read();
  }
  /// Rows that TMA can't store: two features a lane.
  __device__ __forceinline__ void store_elements(std::uint32_t token, std::uint32_t tokens,
                                                 std::uint32_t feature) const {
    feature += 2 * lane;
    auto* to = static_cast<__nv_bfloat16*>(args.out) +
               static_cast<std::uint64_t>(token) * args.rows + feature;
#pragma unroll 1
    for (std::uint32_t t = 0; t < tokens; ++t) {
      const std::uint32_t pair =
          ptx::load_shared_4(staging.chunk(static_cast<int>(t), lane / 4) + lane % 4 * 4);
      if (feature < args.rows) to[0] = __ushort_as_bfloat16(static_cast<unsigned short>(pair));
      if (feature + 1 < args.rows) {
        to[1] = __ushort_as_bfloat16(static_cast<unsigned short>(pair >> 16));
      }
      to += args.rows;
    }
  }
};

}  // namespace slimgemm::cuda
