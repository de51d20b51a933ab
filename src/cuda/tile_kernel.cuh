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
//   the tokens that the other owns (st.async, an mbarrier a warpgroup); each adds in fixed order
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
// a staging tile. Tiles of 128 x 256 and 192 x 128: x is copied by a warpgroup that gives up most
// of its registers, and where no cluster splits k the kernel is persistent: a CTA asks for the
// weights of its next tile before it stores, by way of a staging tile of its own, and x is copied
// on.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/tile_consumer.cuh"
#include "cuda/tile_exceptions.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

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
  share.token =
      static_cast<std::int64_t>(first_token_block + in_group % token_blocks) * args.x_rows;
  share.token_end = min(share.token + args.x_rows, args.m);
  return true;
}

template <plan::TileConfig C>
__device__ __forceinline__ TileShare tile_share(const TileArgs& args) {
  TileShare share;
  share.rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const int rank = static_cast<int>(share.rank);
  share.k_tile_begin = static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * rank / C.cluster);
  const int k_tile_end =
      static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * (rank + 1) / C.cluster);
  share.k_tiles = k_tile_end - share.k_tile_begin;
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
  share.token = static_cast<std::int64_t>(blockIdx.z * group_blocks + token_block) * args.x_rows;
  share.token_end = min(share.token + args.x_rows, args.m);
  return share;
}

/// The warp that copies x, one lane of it. Rows past the CTA's tokens keep what they had: columns
/// of B that are not stored.
template <plan::TileConfig C>
struct TileXCopy {
  static constexpr int first_stages = C.tokens >= 128 ? 2 : C.x_stages;

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
  /// Asks for the first k tiles. Many tokens: only for two, so that x does not stand in the way of
  /// the first weights.
  __device__ __forceinline__ void start() const { fill(0, first_stages); }
  /// And for all the others, of a persistent kernel those of further tiles, too.
  __device__ __forceinline__ void run() const {
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

/// From a warpgroup's sums to `out`. Sums are held in units of 8 tokens, as wgmma has them:
/// [unit][4] in every thread.
template <plan::TileConfig C>
struct TileEpilogue {
  static constexpr int units = plan::owned_units(C);  // of a warpgroup, of its CTA's sums
  static constexpr int unit_bytes = 128 * 16;
  static constexpr plan::TileLayout layout = plan::tile_layout(C);

  const TileArgs& args;
  const TileShare& share;
  TileBarriers<C>& barriers;
  std::uint32_t smem;
  int warpgroup;
  int thread;  // in the warpgroup

  __device__ __forceinline__ int k_group() const { return warpgroup / C.row_blocks; }
  /// Of this warpgroup, in `out`.
  __device__ __forceinline__ std::int64_t first_feature() const {
    const int row_tile = share.row_tile - args.first_row_tile + warpgroup % C.row_blocks * 4;
    return static_cast<std::int64_t>(row_tile) * format::tile_rows;
  }
  __device__ __forceinline__ std::int64_t first_token() const {
    return share.token + k_group() * units * 8;
  }
  /// Memory of a warpgroup for what its partner sends, and to put rows of `out` together: with two
  /// k groups in the ring of x, once all are past it, else in its own ring of weights.
  __device__ __forceinline__ std::uint32_t scratch(int of_warpgroup) const {
    return C.k_groups == 2 ? smem + of_warpgroup * plan::scratch_bytes(C)
                           : smem + layout.w + of_warpgroup * plan::w_ring_bytes(C);
  }
  __device__ __forceinline__ std::uint32_t staging() const {
    if constexpr (plan::is_persistent(C)) {
      return smem + layout.staging + warpgroup * plan::staging_bytes(C);
    }
    return scratch(warpgroup) + (C.k_groups == 2 ? units * unit_bytes : 0);
  }

  template <int First>
  __device__ __forceinline__ void split(const float (&sums)[C.tokens / 2], float (&own)[4 * units],
                                        std::uint32_t to) const {
    constexpr int other = units - First;
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const float* v = sums + 4 * (other + u);
      ptx::store_shared_16(to + u * unit_bytes, make_float4(v[0], v[1], v[2], v[3]));
    }
#pragma unroll
    for (int i = 0; i < 4 * units; ++i) own[i] = sums[4 * First + i];
  }

  /// The two k groups of a row block: each takes one half of the tokens and adds the other's sums.
  __device__ __forceinline__ void sum_k_groups(const float (&sums)[C.tokens / 2],
                                               float (&own)[4 * units]) const {
    const int partner = (warpgroup + C.row_blocks) % plan::warpgroups(C);
    const std::uint32_t to = scratch(partner) + thread * 16;
    ptx::named_barrier_sync(1, 128 * plan::warpgroups(C));  // all are past their rings
    if (k_group() == 0) {
      split<0>(sums, own, to);
    } else {
      split<units>(sums, own, to);
    }
    ptx::named_barrier_sync(1, 128 * plan::warpgroups(C));
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const float4 v = ptx::load_shared_float4(scratch(warpgroup) + thread * 16 + u * unit_bytes);
      own[4 * u] += v.x;
      own[4 * u + 1] += v.y;
      own[4 * u + 2] += v.z;
      own[4 * u + 3] += v.w;
    }
  }

  /// Where `owner` receives unit u from CTA `source` of the cluster.
  __device__ __forceinline__ std::uint32_t received(int u, int owner, int source) const {
    const int index = source < owner ? source : source - 1;  // an owner sends itself nothing
    return smem + layout.receive + thread * 16 +
           ((warpgroup * (C.cluster - 1) + index) * plan::max_units(C) + u -
            plan::first_unit(C, owner)) *
               unit_bytes;
  }

  /// The CTAs of the cluster: each owns some units, and is sent those of the others.
  __device__ __forceinline__ void send(const float (&sums)[4 * units]) const {
    const int rank = static_cast<int>(share.rank);
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const int owner = plan::unit_owner(C, u);
      if (owner == rank) continue;
      const std::uint32_t barrier = ptx::shared_address(&barriers.received[warpgroup]);
      ptx::store_async_16(
          ptx::map_to_rank(received(u, owner, rank), owner),
          make_float4(sums[4 * u], sums[4 * u + 1], sums[4 * u + 2], sums[4 * u + 3]),
          ptx::map_to_rank(barrier, owner));
    }
  }

  /// The sum of an own unit over the cluster, in order of rank.
  __device__ __forceinline__ float4 total(float4 own, int u) const {
    if constexpr (C.cluster == 1) return own;
    const int rank = static_cast<int>(share.rank);
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int source = 0; source < C.cluster; ++source) {
      float4 part = own;
      if (source != rank) part = ptx::load_shared_float4(received(u, rank, source));
      sum.x += part.x;
      sum.y += part.y;
      sum.z += part.z;
      sum.w += part.w;
    }
    return sum;
  }

  __device__ __forceinline__ static std::uint32_t pack(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }

  __device__ __forceinline__ bool owns(int u) const {
    return plan::unit_owner(C, u) == static_cast<int>(share.rank);
  }
  __device__ __forceinline__ float4 total(const float (&sums)[4 * units], int u) const {
    return total(make_float4(sums[4 * u], sums[4 * u + 1], sums[4 * u + 2], sums[4 * u + 3]), u);
  }

  /// Sums over the cluster and writes them to `out`.
  __device__ __forceinline__ void finish(const float (&sums)[4 * units]) const {
    if constexpr (C.cluster > 1) {
      send(sums);
      ptx::mbarrier_wait_cluster(ptx::shared_address(&barriers.received[warpgroup]), 0);
    }
    if constexpr (C.encoding == Encoding::raw32) {
      store_fp32(sums);
    } else {
      store_bf16(sums);
    }
  }

  /// Eight lanes store 8 neighbouring features of a token, a sector.
  __device__ __forceinline__ void store_fp32(const float (&sums)[4 * units]) const {
    const int lane = thread % 32;
    const std::int64_t feature = first_feature() + thread / 32 * 16 + lane / 4;
#pragma unroll
    for (int u = 0; u < units; ++u) {
      if (!owns(u)) continue;
      const float4 v = total(sums, u);
      const std::int64_t token = first_token() + 8 * u + lane % 4 * 2;
      auto* const out = static_cast<float*>(args.out) + token * args.rows + feature;
      const auto store = [&](int t, int f, float value) {
        if (token + t < share.token_end && feature + f < args.rows) out[t * args.rows + f] = value;
      };
      store(0, 0, v.x);
      store(1, 0, v.y);
      store(0, 8, v.z);
      store(1, 8, v.w);
    }
  }

  /// By way of a tile [token][64 features].
  __device__ __forceinline__ void store_bf16(const float (&sums)[4 * units]) const {
    constexpr int step = plan::staged_units(C);
    const int lane = thread % 32;
    const std::uint32_t rows =
        staging() + lane % 8 * plan::staging_row_bytes + thread / 32 * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int first = 0; first < units; first += step) {
      // The warps that share this memory, before as a ring of weights, are past it.
      if (C.k_groups == 1 || first > 0) ptx::named_barrier_sync(2 + warpgroup, 128);
#pragma unroll
      for (int u = first; u < first + step; ++u) {
        if (!owns(u)) continue;
        const float4 v = total(sums, u);
        ptx::stmatrix_x2_trans(rows + (u - first) * 8 * plan::staging_row_bytes, pack(v.x, v.y),
                               pack(v.z, v.w));
      }
      ptx::named_barrier_sync(2 + warpgroup, 128);
      if constexpr (step < units) {
        store_staged(8 * first, 8 * (first + step), 8 * first);
      } else {
        const int rank = static_cast<int>(share.rank);
        store_staged(8 * plan::first_unit(C, rank), 8 * plan::first_unit(C, rank + 1), 0);
      }
    }
  }

  /// Copies tokens [first, end) of 64 features to out, 16 bytes a thread where out allows it.
  /// staged: the first token of the staging tile.
  __device__ __forceinline__ void store_staged(int first, int end, int staged) const {
    auto* const out = static_cast<__nv_bfloat16*>(args.out);
    const std::int64_t feature = first_feature() + thread % 8 * 8;
    const std::int64_t features_left = args.rows - feature;
    if (features_left <= 0) return;
    const bool vectors =
        features_left >= 8 && args.rows % 8 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
    for (int t = first + thread / 8; t < end; t += 16) {
      const std::int64_t token = first_token() + t;
      if (token >= share.token_end) break;
      const uint4 v =
          ptx::load_shared_16(staging() + (t - staged) * plan::staging_row_bytes + thread % 8 * 16);
      __nv_bfloat16* const to = out + token * args.rows + feature;
      if (vectors) {
        *reinterpret_cast<uint4*>(to) = v;
      } else {
        const std::uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          if (j < features_left) {
            to[j] = __ushort_as_bfloat16(static_cast<unsigned short>(words[j / 2] >> 16 * (j % 2)));
          }
        }
      }
    }
  }

  __device__ __forceinline__ void run(const float (&sums)[C.tokens / 2]) const {
    if constexpr (C.k_groups == 2) {
      float own[4 * units];
      sum_k_groups(sums, own);
      finish(own);
    } else {
      finish(sums);
    }
  }
};

/// What the first copies of x need.
template <plan::TileConfig C>
__device__ __forceinline__ void init_full_barriers(TileBarriers<C>& barriers) {
  for (auto& full : barriers.x_full) ptx::mbarrier_init(ptx::shared_address(&full), 1);
  ptx::fence_mbarrier_init();
}

template <plan::TileConfig C>
__device__ __forceinline__ void init_other_barriers(TileBarriers<C>& barriers, std::uint32_t rank) {
  for (auto& empty : barriers.x_empty) {
    ptx::mbarrier_init(ptx::shared_address(&empty), 4 * C.row_blocks);
  }
  if constexpr (C.cluster > 1) {
    for (auto& received : barriers.received) {
      ptx::mbarrier_init(ptx::shared_address(&received), 1);
    }
  }
  ptx::fence_mbarrier_init();
  if constexpr (C.cluster > 1) {
    const int units = plan::first_unit(C, static_cast<int>(rank) + 1) -
                      plan::first_unit(C, static_cast<int>(rank));
    for (auto& received : barriers.received) {
      ptx::mbarrier_arrive_expect(ptx::shared_address(&received),
                                  (C.cluster - 1) * units * 128 * 16);
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
    if (more) {  // its copies are in flight while this tile is stored
      consumer.open(next);
      __syncwarp();  // all lanes have read the exceptions before
      exceptions.ask(consumer.row_tile);
      consumer.fill();
    }
    const int thread = static_cast<int>(threadIdx.x) % 128;
    TileEpilogue<C>{consumer.args, done, consumer.barriers, consumer.smem, warpgroup, thread}.run(
        sums);
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

  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = threadIdx.x % 32;
  const TileShare share = tile_share<C>(args);
  if (args.dependent) ptx::launch_dependents();
  if constexpr (!plan::is_persistent(C)) {
    if (share.token >= args.m) return;  // the last group may have fewer token blocks
  }

  // First of all, each role asks for what it needs first.
  const bool consumes = warp < x_warp;
  using Exceptions =
      std::conditional_t<plan::has_exceptions(C), TileExceptions<C>, NoTileExceptions>;
  using Consumer =
      std::conditional_t<C.encoding == Encoding::raw32, TileTermsConsumer<C>, TileConsumer<C>>;
  Consumer consumer(args, share, barriers, smem, warp, lane);
  Exceptions exceptions(args.exceptions, share,
                        smem + layout.heads + warp * plan::exception_head_bytes,
                        stand_in_bits(args.decode.window), lane);
  const TileXCopy<C> x_copy{args, share, smem, barriers};
  if (consumes) {
    exceptions.ask(consumer.row_tile);
    consumer.fill();
  } else if (warp == x_warp && lane == 0) {
    ptx::prefetch_tensor_map(&args.x_map);
    init_full_barriers<C>(barriers);
    if (args.dependent) ptx::grid_dependency_wait();
    x_copy.start();
    init_other_barriers<C>(barriers, share.rank);
  }
  __syncwarp();
  __syncthreads();  // barriers are initialised, here and (cluster_wait) in the others
  if constexpr (C.cluster > 1) ptx::cluster_arrive_relaxed();

  if (consumes) {
    if constexpr (plan::moves_registers(C)) {
      ptx::more_registers<plan::consumer_registers(C)>();
    }
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
