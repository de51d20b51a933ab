// SPDX-License-Identifier: Apache-2.0
// The end of the tile kernel (tile_kernel.cuh shows the whole): from the warpgroups' sums to `out`.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/tile_consumer.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <cstdint>

namespace slimgemm::cuda {

/// Sums are held in units of 8 tokens, as wgmma has them: [unit][4] in every thread. What CTAs of a
/// cluster exchange goes in steps of a few units for every owner, so that the first units are
/// stored while later ones are on their way: sums come out at once, but an SM takes more than 1000
/// clocks to exchange and store them.
template <plan::TileConfig C>
struct TileEpilogue {
  static constexpr int units = plan::owned_units(C);  // of a warpgroup, of its CTA's sums
  static constexpr int steps = plan::epilogue_steps(C);
  static constexpr int step_units = plan::step_units(C);
  static constexpr int unit_bytes = 128 * 16;
  static constexpr plan::TileLayout layout = plan::tile_layout(C);
  using Sums = float[4 * units];

  const TileArgs& args;
  const TileShare& share;
  TileBarriers<C>& barriers;
  std::uint32_t smem;
  int warpgroup;
  int thread;  // in the warpgroup

  __device__ __forceinline__ int k_group() const { return k_group_of<C>(4 * warpgroup); }
  __device__ __forceinline__ int rank() const {
    return C.cluster > 1 ? static_cast<int>(share.rank) : 0;
  }
  /// Of this warpgroup, in `out`.
  __device__ __forceinline__ std::uint32_t first_feature() const {
    const int row_tile = share.row_tile - args.first_row_tile + row_tile_of<C>(4 * warpgroup);
    return static_cast<std::uint32_t>(row_tile) * format::tile_rows;
  }
  __device__ __forceinline__ std::uint32_t first_token() const {
    return share.token + k_group() * units * 8;
  }
  __device__ __forceinline__ std::uint32_t token_end() const {
    return min(share.token + args.x_rows, args.m);
  }
  /// Memory of a warpgroup for what its partner sends, and to put rows of `out` together: with two
  /// k groups in the ring of x, once all are past it, else in its own ring of weights.
  __device__ __forceinline__ std::uint32_t scratch(int of_warpgroup) const {
    return C.k_groups == 2 ? smem + of_warpgroup * plan::scratch_bytes(C)
                           : smem + layout.w + of_warpgroup * plan::w_ring_bytes(C);
  }
  __device__ __forceinline__ std::uint32_t staging() const {
    return scratch(warpgroup) + (C.k_groups == 2 ? units * unit_bytes : 0);
  }
  __device__ __forceinline__ void sync_warpgroup() const {
    ptx::named_barrier_sync(plan::warpgroup_barrier(warpgroup), 128);
  }

  /// The units of a step that CTA `owner` of the cluster completes.
  template <class F>
  __device__ __forceinline__ static void for_units(int step, int owner, F&& f) {
#pragma unroll
    for (int i = 0; i < step_units; ++i) {
      const int u = plan::first_unit(C, owner) + step * step_units + i;
      if (u < plan::first_unit(C, owner + 1)) f(u);
    }
  }
  template <class F>
  __device__ __forceinline__ static void for_all_units(int step, F&& f) {
#pragma unroll
    for (int owner = 0; owner < C.cluster; ++owner) for_units(step, owner, f);
  }
  __device__ __forceinline__ static float4 unit(const float* sums, int u) {
    return make_float4(sums[4 * u], sums[4 * u + 1], sums[4 * u + 2], sums[4 * u + 3]);
  }
  __device__ __forceinline__ static void add(float4& sum, float4 v) {
    sum.x += v.x;
    sum.y += v.y;
    sum.z += v.z;
    sum.w += v.w;
  }

  /// Two k groups of a row block: each owns one half of the tokens and adds the other's sums.
  /// First: unit of the sums with which the own half begins.
  template <int First>
  __device__ __forceinline__ void give_other_half(const float (&sums)[C.tokens / 2],
                                                  Sums& own) const {
    constexpr int other = units - First;
    const int partner = (warpgroup + C.row_blocks) % plan::warpgroups(C);
    const std::uint32_t to = scratch(partner) + thread * 16;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      for_all_units(
          step, [&](int u) { ptx::store_shared_16(to + u * unit_bytes, unit(sums, other + u)); });
      ptx::named_barrier_arrive(plan::swap_barrier(C, partner, step), 256);
    }
#pragma unroll
    for (int i = 0; i < 4 * units; ++i) own[i] = sums[4 * First + i];
  }
  __device__ __forceinline__ void take_own_half(int step, Sums& own) const {
    ptx::named_barrier_sync(plan::swap_barrier(C, warpgroup, step), 256);
    for_all_units(step, [&](int u) {
      float4 sum = unit(own, u);
      add(sum, ptx::load_shared_float4(scratch(warpgroup) + thread * 16 + u * unit_bytes));
      own[4 * u] = sum.x;
      own[4 * u + 1] = sum.y;
      own[4 * u + 2] = sum.z;
      own[4 * u + 3] = sum.w;
    });
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
  __device__ __forceinline__ void send(int step, const Sums& sums) const {
#pragma unroll
    for (int owner = 0; owner < C.cluster; ++owner) {
      if (owner == rank()) continue;
      const int first = plan::first_unit(C, owner);
      const std::uint32_t to = ptx::map_to_rank(received(first, owner, rank()), owner);
      const std::uint32_t barrier =
          ptx::map_to_rank(ptx::shared_address(&barriers.received[warpgroup][step]), owner);
      for_units(step, owner, [&](int u) {
        ptx::store_async_16(to + (u - first) * unit_bytes, unit(sums, u), barrier);
      });
    }
  }

  /// Calls f(sum over the cluster in order of rank, unit among the own ones) for a step's own
  /// units. All that was received is loaded first.
  template <class F>
  __device__ __forceinline__ void for_totals(int step, const Sums& sums, F&& f) const {
#pragma unroll
    for (int owner = 0; owner < C.cluster; ++owner) {
      if (owner != rank()) continue;
      float4 parts[step_units][C.cluster];
      for_units(step, owner, [&](int u) {
#pragma unroll
        for (int source = 0; source < C.cluster; ++source) {
          parts[u_in_step(u, owner)][source] =
              source == owner ? unit(sums, u) : ptx::load_shared_float4(received(u, owner, source));
        }
      });
      for_units(step, owner, [&](int u) {
        float4 sum = parts[u_in_step(u, owner)][0];
#pragma unroll
        for (int source = 1; source < C.cluster; ++source) {
          add(sum, parts[u_in_step(u, owner)][source]);
        }
        f(sum, u - plan::first_unit(C, owner));
      });
    }
  }
  __device__ __forceinline__ static int u_in_step(int u, int owner) {
    return (u - plan::first_unit(C, owner)) % step_units;
  }
  __device__ __forceinline__ std::uint32_t first_own_token() const {
    return first_token() + 8 * plan::first_unit(C, rank());
  }

  /// The address in `out`.
  template <class T>
  __device__ __forceinline__ T* out(std::uint32_t token, std::uint32_t feature) const {
    return static_cast<T*>(args.out) + static_cast<std::uint64_t>(token) * args.rows + feature;
  }

  /// Eight lanes store 8 neighbouring features of a token, a sector.
  __device__ __forceinline__ void store_fp32(int step, const Sums& sums) const {
    const int lane = thread % 32;
    const std::uint32_t first = first_feature() + thread / 32 * 16 + lane / 4;
    for_totals(step, sums, [&](float4 v, int u) {
      const auto store = [&](int t, int f, float value) {
        const std::uint32_t token = first_own_token() + 8 * u + lane % 4 * 2 + t;
        const std::uint32_t feature = first + f;
        if (token < token_end() && feature < args.rows) *out<float>(token, feature) = value;
      };
      store(0, 0, v.x);
      store(1, 0, v.y);
      store(0, 8, v.z);
      store(1, 8, v.w);
    });
  }

  /// By way of a staging tile [token][64 features], each step in rows of its own.
  __device__ __forceinline__ void store_bf16(int step, const Sums& sums) const {
    const int lane = thread % 32;
    const std::uint32_t to =
        staging() + lane % 8 * plan::staging_row_bytes + thread / 32 * 32 + lane / 8 % 2 * 16;
    for_totals(step, sums, [&](float4 v, int u) {
      ptx::stmatrix_x2_trans(to + u * 8 * plan::staging_row_bytes, ptx::bf16_pair(v.x, v.y),
                             ptx::bf16_pair(v.z, v.w));
    });
    sync_warpgroup();
    store_staged(step);
  }

  /// A step's tokens, 64 features: eight threads a token, 16 bytes each where out allows it.
  __device__ __forceinline__ void store_staged(int step) const {
    constexpr int rounds = step_units * 8 / 16;  // of 16 tokens, the last one of a CTA maybe of 8
    constexpr int batch = rounds % 4 == 0 ? 4 : rounds % 3 == 0 ? 3 : rounds;  // loads on their way
    static_assert(step_units % 2 == 0 && rounds % batch == 0, "whole rounds, whole batches");
    const std::uint32_t feature = first_feature() + thread % 8 * 8;
    const int own_tokens = 8 * (plan::first_unit(C, rank() + 1) - plan::first_unit(C, rank()));
    const std::uint32_t from = staging() + thread % 8 * 16;
#pragma unroll
    for (int i = step * rounds; i < (step + 1) * rounds; i += batch) {
      uint4 v[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j) {
        const int t = (i + j) * 16 + thread / 8;  // of the own tokens
        if (t < own_tokens) v[j] = ptx::load_shared_16(from + t * plan::staging_row_bytes);
      }
#pragma unroll
      for (int j = 0; j < batch; ++j) {
        const int t = (i + j) * 16 + thread / 8;
        const std::uint32_t token = first_own_token() + t;
        if (t < own_tokens && token < token_end() && feature < args.rows) {
          store_features(out<__nv_bfloat16>(token, feature), v[j], args.rows - feature);
        }
      }
    }
  }
  __device__ __forceinline__ void store_features(__nv_bfloat16* to, uint4 v,
                                                 std::uint32_t features_left) const {
    if (args.out_vectors) {
      *reinterpret_cast<uint4*>(to) = v;
      return;
    }
#pragma unroll 1
    for (unsigned j = 0; j < min(features_left, 8u); ++j) {
      to[j] = __ushort_as_bfloat16(static_cast<unsigned short>(v.x));
      v.x = __funnelshift_r(v.x, v.y, 16);
      v.y = __funnelshift_r(v.y, v.z, 16);
      v.z = __funnelshift_r(v.z, v.w, 16);
      v.w >>= 16;
    }
  }

  __device__ __forceinline__ void store(int step, const Sums& sums) const {
    if constexpr (C.encoding == Encoding::raw32) {
      store_fp32(step, sums);
    } else {
      store_bf16(step, sums);
    }
  }

  __device__ __forceinline__ void finish(Sums& own) const {
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      if constexpr (C.k_groups == 2) take_own_half(step, own);
      if constexpr (C.cluster == 1) {
        store(step, own);
      } else {
        send(step, own);
      }
    }
    if constexpr (C.cluster > 1) {
#pragma unroll
      for (int step = 0; step < steps; ++step) {
        ptx::mbarrier_wait_cluster(ptx::shared_address(&barriers.received[warpgroup][step]), 0);
        store(step, own);
      }
    }
  }

  __device__ __forceinline__ void run(float (&sums)[C.tokens / 2]) const {
    if constexpr (C.k_groups == 2) {
      float own[4 * units];
      // All are past their rings.
      ptx::named_barrier_sync(plan::all_warpgroups_barrier, 128 * plan::warpgroups(C));
      if (k_group() == 0) {
        give_other_half<0>(sums, own);
      } else {
        give_other_half<units>(sums, own);
      }
      finish(own);
    } else {
      sync_warpgroup();  // the warps that share the staging tile are past what it was before
      finish(sums);
    }
  }
};

}  // namespace slimgemm::cuda
