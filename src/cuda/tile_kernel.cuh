// SPDX-License-Identifier: Apache-2.0
// The tile kernel: a linear layer for 33 and more tokens, on the tensor cores at full rate.
//
//   packed tiles                                  x (m x K)
//     | TMA box {k tile, 4 row tiles a block}      | TMA box {64 k, tokens}, 128-byte swizzle
//     v                                            v
//   ring of w_stages                             ring of x_stages
//     | ld.shared, decode in registers,            |
//     v                                            v
//   wgmma m64nNk16: A = 64 decoded weight rows from registers, B = x from shared memory
//     |
//     v  FP32 sums of 64 features x tokens in each warpgroup
//   all partners (k_groups x cluster) send each other the token units the other owns (st.shared
//   inside a CTA, st.async to another; one mbarrier a warpgroup); each adds them in fixed order
//     v
//   exceptions, scale, stmatrix to a staging tile [token][feature], 16-byte stores
//
// Roles: warpgroups 0 .. n-1 consume; the last one's warp 0 copies weights, its warp 1 x. Every
// ring slot has a full barrier (bytes) and an empty barrier (weights: every consumer thread, x: one
// arrival a consumer warp). A warpgroup decodes k tile i + 1 while the tensor cores work on k tile
// i: two sets of fragments, at most one group of wgmma in flight when the older set is overwritten.
//
// Exceptions: an exception's slot decodes to a stand-in. The warp that owns a result replaces the
// stand-in's product by the true weight's, on its sums over all k (OwnedExceptions).
#pragma once

#include "cuda/exceptions.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/weights.cuh"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace slimgemm::cuda {

template <plan::TileConfig C>
struct TileBarriers {
  std::uint64_t x_full[C.x_stages];
  std::uint64_t x_empty[C.x_stages];
  std::uint64_t w_full[C.w_stages];
  std::uint64_t w_empty[C.w_stages];
  std::uint64_t received[plan::warpgroups(C)];
};

/// Where a CTA works.
struct TileShare {
  int k_tile_begin;
  int k_tiles;
  int row_tile;        // first, in the matrix
  int last_row_tile;   // of the call, in the matrix
  std::int64_t token;  // first
  std::uint32_t rank;
};

template <plan::TileConfig C>
__device__ __forceinline__ TileShare tile_share(const TileArgs& args) {
  TileShare share;
  share.rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const int rank = static_cast<int>(share.rank);
  share.k_tile_begin = static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * rank / C.cluster);
  const int k_tile_end =
      static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * (rank + 1) / C.cluster);
  share.k_tiles = k_tile_end - share.k_tile_begin;
  share.row_tile =
      args.first_row_tile + static_cast<int>(blockIdx.x) / C.cluster * C.row_blocks * 4;
  share.last_row_tile = args.first_row_tile + args.row_tiles - 1;
  share.token = static_cast<std::int64_t>(blockIdx.y) * C.tokens;
  return share;
}

/// A position in a ring: slot and parity of its round. Steps by `step` slots.
template <int Slots>
struct RingPosition {
  int slot;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int step) {
    slot += step;
    if (slot >= Slots) {
      slot -= Slots;
      parity ^= 1;
    }
  }
};

/// The weight producer, one lane. Row tiles past the end of the matrix read as zero.
template <plan::TileConfig C>
__device__ void produce_weights(const TileArgs& args, const TileShare& share, std::uint32_t ring,
                                TileBarriers<C>& barriers) {
  constexpr int stage_bytes = 4 * C.row_blocks * plan::tile_bytes(C.encoding);
  RingPosition<C.w_stages> at{0};
  for (int i = 0; i < share.k_tiles; ++i) {
    const std::uint32_t full = ptx::shared_address(&barriers.w_full[at.slot]);
    if (i >= C.w_stages) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.w_empty[at.slot]), at.parity ^ 1);
    }
    ptx::mbarrier_arrive_expect(full, stage_bytes);
    ptx::tma_load_3d(ring + at.slot * stage_bytes, &args.w_map, 0, share.k_tile_begin + i,
                     share.row_tile, full);
    at.advance(1);
  }
}

/// The x producer, one lane.
template <plan::TileConfig C>
__device__ void produce_x(const TileArgs& args, const TileShare& share, std::uint32_t ring,
                          TileBarriers<C>& barriers) {
  RingPosition<C.x_stages> at{0};
  for (int i = 0; i < share.k_tiles; ++i) {
    const std::uint32_t full = ptx::shared_address(&barriers.x_full[at.slot]);
    if (i >= C.x_stages) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_empty[at.slot]), at.parity ^ 1);
    }
    ptx::mbarrier_arrive_expect(full, C.tokens * 128);
    ptx::tma_load_3d(ring + at.slot * C.tokens * 128, &args.x_map, 0, static_cast<int>(share.token),
                     share.k_tile_begin + i, full);
    at.advance(1);
  }
}

/// The exceptions of a warp's row tile (16 features), for the `Units` token units that its
/// warpgroup ends up owning. Their entries and x are fetched before the main loop and used after
/// it, on the sums of all k: subtract() takes the stand-ins' products away, exactly; then the sums
/// are scaled; then add() puts the true weights' products in (cuda/exceptions.cuh). Only the first
/// group of 16 is fetched ahead, and its x only where registers are left for it.
template <int Units>
struct OwnedExceptions {
  static constexpr bool ahead = Units <= 16;
  static constexpr int at_once = Units <= 8 ? Units : 8;

  const ExceptionView& view;
  std::uint32_t row_tile;
  TokenBlock block;
  int lane;
  LaneEntries entries;
  std::uint32_t x[ahead ? Units : 1][2];

  __device__ __forceinline__ OwnedExceptions(const ExceptionView& view, std::uint32_t row_tile,
                                             const TokenBlock& block, int lane)
      : view(view), row_tile(row_tile), block(block), lane(lane) {
    entries = load_entries(view.groups + row_tile, lane);
    if constexpr (ahead) {
#pragma unroll
      for (int u = 0; u < Units; ++u) gather_x(x[u], entries, block, 8 * u + lane / 4);
    }
  }

  __device__ __forceinline__ void multiply_gathered(float (&sums)[Units][4],
                                                    const std::uint32_t (&a)[4],
                                                    const LaneEntries& e) const {
#pragma unroll
    for (int first = 0; first < Units; first += at_once) {
      std::uint32_t b[at_once][2];
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (first + u < Units) gather_x(b[u], e, block, 8 * (first + u) + lane / 4);
      }
#pragma unroll
      for (int u = 0; u < at_once; ++u) {
        if (first + u < Units) ptx::mma_m16n8k16(sums[first + u], a, b[u][0], b[u][1]);
      }
    }
  }

  /// sums[u] += fragment(entries) * x, for every group of the row tile.
  template <class Fragment>
  __device__ __forceinline__ void multiply(float (&sums)[Units][4],
                                           const Fragment& fragment) const {
    std::uint32_t a[4];
    fragment(a, entries);
    if constexpr (ahead) {
#pragma unroll
      for (int u = 0; u < Units; ++u) ptx::mma_m16n8k16(sums[u], a, x[u][0], x[u][1]);
    } else {
      multiply_gathered(sums, a, entries);
    }
    const std::uint32_t end = __ldg(view.extra_begin + row_tile + 1);
#pragma unroll 1
    for (std::uint32_t i = __ldg(view.extra_begin + row_tile); i < end; ++i) {
      const LaneEntries more = load_entries(view.groups + view.row_tiles + i, lane);
      fragment(a, more);
      multiply_gathered(sums, a, more);
    }
  }

  __device__ __forceinline__ void subtract(float (&sums)[Units][4]) const {
    constexpr std::uint32_t minus = 0x8000;
    multiply(sums, [&](std::uint32_t(&a)[4], const LaneEntries& e) {
      stand_in_fragment(a, e, format::decoded_stand_in | minus, lane);
    });
  }
  __device__ __forceinline__ void add(float (&sums)[Units][4]) const {
    multiply(sums, [&](std::uint32_t(&a)[4], const LaneEntries& e) {
      sparse_fragment(a, e, e.bits, lane);
    });
  }
};

/// One consumer warpgroup's main loop.
template <plan::TileConfig C>
struct TileConsumer {
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);

  const TileArgs& args;
  const TileShare& share;
  TileBarriers<C>& barriers;
  const int lane;
  const int k_group;
  std::uint32_t x_ring;
  std::uint32_t w_ring;  // this lane's bytes of its row tile in slot 0
  RingPosition<C.x_stages> x_at;
  RingPosition<C.w_stages> w_at;

  __device__ __forceinline__ TileConsumer(const TileArgs& args, const TileShare& share,
                                          TileBarriers<C>& barriers, std::uint32_t smem,
                                          int warpgroup, int warp_in_group, int lane)
      : args(args),
        share(share),
        barriers(barriers),
        lane(lane),
        k_group(warpgroup / C.row_blocks),
        x_at{k_group},
        w_at{k_group} {
    constexpr plan::TileLayout layout = plan::tile_layout(C);
    x_ring = smem + layout.x;
    w_ring =
        smem + layout.w + (warpgroup % C.row_blocks * 4 + warp_in_group) * tile_bytes + lane * 16;
  }

  /// Waits for a k tile of weights, frees its slot and decodes it.
  __device__ __forceinline__ void decode(std::uint32_t (&fragments)[16]) {
    const int slot = w_at.slot;
    ptx::mbarrier_wait(ptx::shared_address(&barriers.w_full[slot]), w_at.parity);
    const std::uint32_t from = w_ring + slot * (4 * C.row_blocks * tile_bytes);
    LaneTile<C.encoding> tile;
    tile.load(from);
    std::uint32_t arrived = 0;
#pragma unroll
    for (const uint4& plane : tile.plane) arrived ^= plane.x;
    ptx::mbarrier_arrive(
        ptx::address_after(ptx::shared_address(&barriers.w_empty[slot]), arrived, args.zero));
    w_at.advance(C.k_groups);
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      std::uint32_t a[1][4];
      tile.fragment(from, f, false, a);
#pragma unroll
      for (int i = 0; i < 4; ++i) fragments[4 * f + i] = a[0][i];
    }
  }

  /// Starts the four wgmma of a k tile.
  __device__ __forceinline__ void multiply(float (&sums)[C.tokens / 2],
                                           std::uint32_t (&fragments)[16]) {
    const int slot = x_at.slot;
    ptx::mbarrier_wait(ptx::shared_address(&barriers.x_full[slot]), x_at.parity);
    const std::uint64_t x = ptx::wgmma_descriptor(x_ring + slot * C.tokens * 128);
    ptx::pin_registers(fragments);
    ptx::wgmma_fence();
#pragma unroll
    for (int f = 0; f < 4; ++f) ptx::Wgmma<C.tokens>::mma(sums, fragments + 4 * f, x + 2 * f);
    ptx::wgmma_commit();
  }

  __device__ __forceinline__ void release_x(int slot) {
    if (lane == 0) ptx::mbarrier_arrive(ptx::shared_address(&barriers.x_empty[slot]));
  }

  __device__ __forceinline__ void run(float (&sums)[C.tokens / 2]) {
    std::uint32_t fragments[2][16];
    int i = k_group;
    if (i < share.k_tiles) {
      decode(fragments[0]);
      int previous = -1;
      // Multiplies with `now` while `next` is decoded; false after the last k tile.
      const auto step = [&](std::uint32_t(&now)[16], std::uint32_t(&next)[16]) {
        multiply(sums, now);
        i += C.k_groups;
        if (i >= share.k_tiles) return false;
        ptx::wgmma_wait<1>();  // the group before: `next` and its x are free
        if (previous >= 0) release_x(previous);
        previous = x_at.slot;
        x_at.advance(C.k_groups);
        decode(next);
        return true;
      };
      while (step(fragments[0], fragments[1]) && step(fragments[1], fragments[0])) {
      }
    }
    ptx::wgmma_wait<0>();
    ptx::pin_registers(sums);
  }
};

/// raw16 has none.
struct NoExceptions {};

/// Sends every partner its token units, adds what the others sent, and stores the result.
template <plan::TileConfig C>
struct TileEpilogue {
  using Exceptions = std::conditional_t<C.encoding == Encoding::split12,
                                        OwnedExceptions<plan::max_units(C)>, NoExceptions>;
  static constexpr int partners = plan::partners(C);
  static constexpr int unit_bytes = 128 * 16;
  static constexpr int source_bytes = plan::max_units(C) * unit_bytes;

  const TileArgs& args;
  const TileShare& share;
  TileBarriers<C>& barriers;
  std::uint32_t smem;
  int warpgroup;
  int thread;  // in the warpgroup

  /// The warpgroup that is partner p: CTA p / k_groups of the cluster, k group p % k_groups.
  __device__ __forceinline__ int partner_warpgroup(int p) const {
    return p % C.k_groups * C.row_blocks + warpgroup % C.row_blocks;
  }
  __device__ __forceinline__ static std::uint32_t exchange_offset(int owner_warpgroup, int source,
                                                                  int owner) {
    const int index = source < owner ? source : source - 1;  // an owner sends itself nothing
    return plan::tile_layout(C).exchange +
           (owner_warpgroup * (partners - 1) + index) * source_bytes;
  }

  /// Sends partner P the units that it owns.
  template <int P>
  __device__ __forceinline__ void send_to(const float (&sums)[C.tokens / 2], int me) const {
    constexpr int begin = plan::first_unit(C, P);
    constexpr int end = plan::first_unit(C, P + 1);
    constexpr std::uint32_t rank = P / C.k_groups;
    const int owner = partner_warpgroup(P);
    const std::uint32_t local =
        smem + exchange_offset(owner, me, P) + static_cast<std::uint32_t>(thread) * 16;
    const std::uint32_t barrier = ptx::shared_address(&barriers.received[owner]);
    const bool remote = rank != share.rank;
    const std::uint32_t to = remote ? ptx::map_to_rank(local, rank) : local;
    const std::uint32_t remote_barrier = remote ? ptx::map_to_rank(barrier, rank) : 0;
#pragma unroll
    for (int u = begin; u < end; ++u) {
      const float4 v = make_float4(sums[4 * u], sums[4 * u + 1], sums[4 * u + 2], sums[4 * u + 3]);
      if (remote) {
        ptx::store_async_16(to + (u - begin) * unit_bytes, v, remote_barrier);
      } else {
        ptx::store_shared_16(to + (u - begin) * unit_bytes,
                             make_uint4(__float_as_uint(v.x), __float_as_uint(v.y),
                                        __float_as_uint(v.z), __float_as_uint(v.w)));
      }
    }
    if (!remote) ptx::mbarrier_arrive(barrier);
  }

  template <int... P>
  __device__ __forceinline__ void send(const float (&sums)[C.tokens / 2], int me,
                                       std::integer_sequence<int, P...>) const {
    ((P != me ? send_to<P>(sums, me) : void()), ...);
  }

  /// The sum of unit u (partner `Owner` owns it) over all partners, in their order.
  template <int Owner>
  __device__ __forceinline__ float4 total(const float (&sums)[C.tokens / 2], int u) const {
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int p = 0; p < partners; ++p) {
      float4 part;
      if (p == Owner) {
        part = make_float4(sums[4 * u], sums[4 * u + 1], sums[4 * u + 2], sums[4 * u + 3]);
      } else {
        const uint4 bits = ptx::load_shared_16(smem + exchange_offset(warpgroup, p, Owner) +
                                               (u - plan::first_unit(C, Owner)) * unit_bytes +
                                               static_cast<std::uint32_t>(thread) * 16);
        part = make_float4(__uint_as_float(bits.x), __uint_as_float(bits.y),
                           __uint_as_float(bits.z), __uint_as_float(bits.w));
      }
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

  /// Adds up this partner's units, corrects, scales, and writes them to the staging tile, then to
  /// out.
  template <int Owner>
  __device__ __forceinline__ void finish(const float (&sums)[C.tokens / 2],
                                         const Exceptions& exceptions) const {
    constexpr int begin = plan::first_unit(C, Owner);
    constexpr int units = plan::first_unit(C, Owner + 1) - begin;
    if constexpr (partners > 1) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.received[warpgroup]), 0);
    }
    float result[plan::max_units(C)][4] = {};
#pragma unroll
    for (int u = 0; u < units; ++u) {
      const float4 sum = total<Owner>(sums, begin + u);
      result[u][0] = sum.x;
      result[u][1] = sum.y;
      result[u][2] = sum.z;
      result[u][3] = sum.w;
    }
    if constexpr (C.encoding == Encoding::split12) {
      exceptions.subtract(result);
#pragma unroll
      for (int u = 0; u < units; ++u) {
#pragma unroll
        for (int i = 0; i < 4; ++i) result[u][i] *= args.scale;
      }
      exceptions.add(result);
    }
    store<units>(result, begin * 8);
  }

  /// Writes `Units` units of results, from token `first_token` of the CTA on.
  template <int Units>
  __device__ __forceinline__ void store(const float (&result)[plan::max_units(C)][4],
                                        int first_token) const {
    const int lane = thread % 32;
    const int warp = thread / 32;
    const std::uint32_t staging = smem + plan::tile_layout(C).staging +
                                  warpgroup * plan::max_units(C) * 8 * plan::staging_row_bytes;
#pragma unroll
    for (int u = 0; u < Units; u += 2) {        // 16 tokens x 16 features a stmatrix
      const int v = u + 1 < Units ? u + 1 : u;  // the last of an odd number is stored twice
      const std::uint32_t r[4] = {
          pack(result[u][0], result[u][1]), pack(result[u][2], result[u][3]),
          pack(result[v][0], result[v][1]), pack(result[v][2], result[v][3])};
      // Stored matrix l / 8: features 8 * (l / 8 % 2) of the warp's 16, tokens of unit u or v.
      const int token = (lane / 16 ? v : u) * 8 + lane % 8;
      ptx::stmatrix_x4_trans(
          staging + token * plan::staging_row_bytes + warp * 32 + lane / 8 % 2 * 16, r);
    }
    ptx::named_barrier_sync(1 + warpgroup, 128);
    store_staged(staging, first_token, Units * 8);
  }

  /// Copies `count` staged tokens of 64 features to out, 16 bytes a thread where out allows it.
  __device__ __forceinline__ void store_staged(std::uint32_t staging, int first_token,
                                               int count) const {
    auto* const out = static_cast<__nv_bfloat16*>(args.out);
    const std::int64_t feature = static_cast<std::int64_t>(share.row_tile - args.first_row_tile +
                                                           warpgroup % C.row_blocks * 4) *
                                     16 +
                                 thread % 8 * 8;
    const std::int64_t features_left = args.rows - feature;
    if (features_left <= 0) return;
    const bool vectors =
        features_left >= 8 && args.rows % 8 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;
    for (int t = thread / 8; t < count; t += 16) {
      const std::int64_t token = share.token + first_token + t;
      if (token >= args.m) break;
      const uint4 v = ptx::load_shared_16(staging + t * plan::staging_row_bytes + thread % 8 * 16);
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

  template <int Owner = 0>
  __device__ __forceinline__ void finish_as(const float (&sums)[C.tokens / 2], int me,
                                            const Exceptions& exceptions) const {
    if (me == Owner) {
      finish<Owner>(sums, exceptions);
    } else if constexpr (Owner + 1 < partners) {
      finish_as<Owner + 1>(sums, me, exceptions);
    }
  }

  /// Which partner this warpgroup is.
  __device__ __forceinline__ int partner() const {
    return static_cast<int>(share.rank) * C.k_groups + warpgroup / C.row_blocks;
  }

  /// The exceptions that concern this warp's results; to be fetched before the main loop.
  __device__ __forceinline__ Exceptions fetch_exceptions() const {
    if constexpr (C.encoding != Encoding::split12) {
      return {};
    } else {
      const int row_tile =
          min(share.row_tile + warpgroup % C.row_blocks * 4 + thread / 32, share.last_row_tile);
      // Units past the last token repeat it.
      const std::int64_t token = min(share.token + plan::first_unit(C, partner()) * 8, args.m - 1);
      const TokenBlock block{args.x + token * args.x_row_stride, args.x_row_stride,
                             static_cast<int>(min(args.m - token, std::int64_t{C.tokens}))};
      return Exceptions(args.exceptions, static_cast<std::uint32_t>(row_tile), block, thread % 32);
    }
  }

  __device__ __forceinline__ void run(const float (&sums)[C.tokens / 2],
                                      const Exceptions& exceptions) const {
    const int me = partner();
    if constexpr (partners > 1) send(sums, me, std::make_integer_sequence<int, partners>{});
    finish_as(sums, me, exceptions);
  }
};

template <plan::TileConfig C>
__device__ __forceinline__ void init_barriers(TileBarriers<C>& barriers, std::uint32_t rank) {
  for (int s = 0; s < C.x_stages; ++s) {
    ptx::mbarrier_init(ptx::shared_address(&barriers.x_full[s]), 1);
    ptx::mbarrier_init(ptx::shared_address(&barriers.x_empty[s]), 4 * C.row_blocks);
  }
  for (int s = 0; s < C.w_stages; ++s) {
    ptx::mbarrier_init(ptx::shared_address(&barriers.w_full[s]), 1);
    ptx::mbarrier_init(ptx::shared_address(&barriers.w_empty[s]), 128 * C.row_blocks);
  }
  // What a warpgroup receives: an arrival a thread of the CTA's other k groups, bytes from other
  // CTAs.
  constexpr int arrivals = 128 * (C.k_groups - 1) + (C.cluster > 1 ? 1 : 0);
  if constexpr (arrivals > 0) {
    for (int w = 0; w < plan::warpgroups(C); ++w) {
      ptx::mbarrier_init(ptx::shared_address(&barriers.received[w]), arrivals);
    }
  }
  ptx::fence_mbarrier_init();
  if constexpr (C.cluster > 1) {
    for (int w = 0; w < plan::warpgroups(C); ++w) {
      const int me = static_cast<int>(rank) * C.k_groups + w / C.row_blocks;
      const int units = plan::first_unit(C, me + 1) - plan::first_unit(C, me);
      ptx::mbarrier_arrive_expect(ptx::shared_address(&barriers.received[w]),
                                  (C.cluster - 1) * C.k_groups * units * 128 * 16);
    }
  }
}

/// Index: entry of plan::tile_table.
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::tile_table[Index]), 1)
    tile_kernel(const __grid_constant__ TileArgs args) {
  constexpr plan::TileConfig C = plan::tile_table[Index];
  constexpr plan::TileLayout layout = plan::tile_layout(C);
  constexpr int consumers = plan::warpgroups(C);
  extern __shared__ __align__(1024) unsigned char smem_bytes[];
  auto& barriers = *reinterpret_cast<TileBarriers<C>*>(smem_bytes + layout.barriers);
  const std::uint32_t smem = ptx::shared_address(smem_bytes);

  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = threadIdx.x % 32;
  const TileShare share = tile_share<C>(args);
  if (warp == 4 * consumers && lane == 0) {
    ptx::prefetch_tensor_map(&args.x_map);
    ptx::prefetch_tensor_map(&args.w_map);
    init_barriers<C>(barriers, share.rank);
  }
  __syncthreads();
  if constexpr (C.cluster > 1) ptx::cluster_arrive_relaxed();  // this CTA's barriers are ready

  if (warp >= 4 * consumers) {
    if constexpr (consumers > 1) ptx::set_max_registers_down<24>();
    if (warp == 4 * consumers && lane == 0) {
      produce_weights<C>(args, share, smem + layout.w, barriers);
    } else if (warp == 4 * consumers + 1 && lane == 0) {
      produce_x<C>(args, share, smem + layout.x, barriers);
    }
    __syncwarp();
    if constexpr (C.cluster > 1) ptx::cluster_wait();
  } else {
    if constexpr (consumers > 1) ptx::set_max_registers_up<240>();
    const TileEpilogue<C> epilogue{args, share,    barriers,
                                   smem, warp / 4, static_cast<int>(threadIdx.x) % 128};
    const auto exceptions = epilogue.fetch_exceptions();
    float sums[C.tokens / 2] = {};
    TileConsumer<C>(args, share, barriers, smem, warp / 4, warp % 4, lane).run(sums);
    if constexpr (C.cluster > 1) ptx::cluster_wait();  // the others' barriers are ready
    epilogue.run(sums, exceptions);
  }
  // No closing cluster barrier: a warpgroup leaves when all that is sent to it has arrived.
}

}  // namespace slimgemm::cuda
