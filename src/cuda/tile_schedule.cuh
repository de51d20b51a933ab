// SPDX-License-Identifier: Apache-2.0
// Which tiles a CTA of the tile kernel computes (tile_kernel.cuh shows the whole).
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "plan/kernel_table.hpp"

namespace slimgemm::cuda {

/// Of a persistent kernel: tile `index` of the call, false past the last. Token blocks in groups,
/// all rows for one group before the next: a wave's x stays in L2. CTAs that share x count as one,
/// with neighbouring rows.
template <plan::TileConfig C>
__device__ __forceinline__ bool find_tile(const TileArgs& args, int index, TileShare& share) {
  if (index >= args.token_blocks * args.row_groups) return false;
  const int group_tiles = args.token_group * args.row_groups;
  const int first_token_block = index / group_tiles * args.token_group;
  const int in_group = index % group_tiles;
  const int token_blocks = min(args.token_group, args.token_blocks - first_token_block);
  int row_block = in_group / token_blocks * C.x_sharers;
  if constexpr (C.x_sharers > 1) row_block += static_cast<int>(ptx::cluster_rank());
  share.row_tile = args.first_row_tile + row_block * C.row_blocks * 4;
  share.token = static_cast<unsigned>(first_token_block + in_group % token_blocks) * args.x_rows;
  return true;
}
/// Index of a CTA's first tile, and how many further on the next one is.
template <plan::TileConfig C>
__device__ __forceinline__ int first_tile() {
  return static_cast<int>(blockIdx.x / C.x_sharers);
}
template <plan::TileConfig C>
__device__ __forceinline__ int tile_stride() {
  return static_cast<int>(gridDim.x / C.x_sharers);
}

/// A CTA's tile, of a persistent kernel the first.
template <plan::TileConfig C>
__device__ __forceinline__ TileShare tile_share(const TileArgs& args) {
  TileShare share;
  share.rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const auto k_tiles = static_cast<unsigned>(args.k_tiles);  // of 64, so that products fit
  share.k_tile_begin = static_cast<int>(k_tiles * share.rank / C.cluster);
  share.k_tiles = static_cast<int>(k_tiles * (share.rank + 1) / C.cluster) - share.k_tile_begin;
  share.last_row_tile = args.last_row_tile;
  if constexpr (plan::is_persistent(C)) {
    find_tile<C>(args, first_tile<C>(), share);
    return share;
  }
  // Token blocks in groups, as in find_tile.
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

}  // namespace slimgemm::cuda
