// SPDX-License-Identifier: Apache-2.0
// The tile kernel: a linear layer for more tokens (from about 32), on the tensor cores at full
// rate.
//
//   packed tiles                                  x (m x K)
//     | TMA box {k tile, 4 row tiles a block}      | TMA box {64 k, x_rows}, 128-byte swizzle
//     v                                            v
//   ring of w_stages                             ring of x_stages
//     | ld.shared, decode in registers,            |
//     v exceptions patched in                      v
//   wgmma m64nNk16: A = 64 decoded weight rows from registers, B = x from shared memory
//     |
//     v  FP32 sums of 64 features x tokens in each warpgroup
//   all partners (k_groups x cluster) send each other the token units the other owns (st.shared
//   inside a CTA, st.async to another; one mbarrier a warpgroup); each adds them in fixed order
//     v
//   stmatrix to a staging tile [token][feature], 16-byte stores
//
// Roles: warpgroups 0 .. n-1 consume; the last one's warp 0 copies weights, its warp 1 x. Every
// ring slot has a full barrier (bytes) and an empty barrier (weights: every consumer thread, x: one
// arrival a consumer warp). A warpgroup decodes k tile i + 1 while the tensor cores work on k tile
// i: two sets of fragments, at most one group of wgmma in flight when the older set is overwritten.
//
// Exceptions: an exception's slot decodes to a stand-in; the warp that owns its row overwrites it
// in the fragment with the true weight.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/weights.cuh"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <climits>
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

/// The x producer, one lane. Rows past m keep what they had: a column of B that is not stored.
template <plan::TileConfig C>
__device__ void produce_x(const TileArgs& args, const TileShare& share, std::uint32_t ring,
                          TileBarriers<C>& barriers) {
  RingPosition<C.x_stages> at{0};
  for (int i = 0; i < share.k_tiles; ++i) {
    const std::uint32_t full = ptx::shared_address(&barriers.x_full[at.slot]);
    if (i >= C.x_stages) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_empty[at.slot]), at.parity ^ 1);
    }
    ptx::mbarrier_arrive_expect(full, args.x_rows * 128);
    ptx::tma_load_3d(ring + at.slot * C.tokens * 128, &args.x_map, 0, static_cast<int>(share.token),
                     share.k_tile_begin + i, full);
    at.advance(1);
  }
}

/// The exceptions of one row tile, read by one warp in order of k: a group of 16 at a time, one
/// entry a lane. Only a row tile with more than one group ever waits for the next.
struct ExceptionStream {
  const ExceptionView& view;
  std::uint32_t extra_begin;  // next extra group to load, and the end
  std::uint32_t extra_end;
  uint2 entries;    // this lane's entry: k, row << 16 | bits
  int cursor = 0;   // next entry
  int next_k_tile;  // of that entry; INT_MAX: none is left

  __device__ __forceinline__ ExceptionStream(const ExceptionView& view, std::uint32_t row_tile,
                                             int lane)
      : view(view) {
    entries = load(row_tile, lane);
    extra_begin = view.row_tiles + __ldg(view.extra_begin + row_tile);
    extra_end = view.row_tiles + __ldg(view.extra_begin + row_tile + 1);
    look_at_next();
  }

  __device__ __forceinline__ uint2 load(std::uint32_t group, int lane) const {
    return __ldg(reinterpret_cast<const uint2*>(view.groups + group) + lane % 16);
  }
  __device__ __forceinline__ void look_at_next() {
    const std::uint32_t row_bits = __shfl_sync(0xFFFFFFFFu, entries.y, cursor);
    const std::uint32_t k = __shfl_sync(0xFFFFFFFFu, entries.x, cursor);
    const bool used = (row_bits >> 16 & 0xFF) != format::unused_row;
    next_k_tile = used ? static_cast<int>(k / format::tile_k) : INT_MAX;
  }
  __device__ __forceinline__ void advance(int lane) {
    if (++cursor == format::group_entries) {
      if (extra_begin == extra_end) {
        next_k_tile = INT_MAX;
        return;
      }
      entries = load(extra_begin++, lane);
      cursor = 0;
    }
    look_at_next();
  }

  /// Overwrites the stand-ins of k tile `k_tile` (calls go up in k) in the warp's fragments.
  __device__ __forceinline__ void patch(std::uint32_t (&fragments)[16], int k_tile, int lane) {
    while (next_k_tile <= k_tile) {
      if (next_k_tile == k_tile) {
        patch_one(fragments, __shfl_sync(0xFFFFFFFFu, entries.x, cursor),
                  __shfl_sync(0xFFFFFFFFu, entries.y, cursor), lane);
      }
      advance(lane);
    }
  }

  __device__ __forceinline__ static void patch_one(std::uint32_t (&fragments)[16], std::uint32_t k,
                                                   std::uint32_t row_bits, int lane) {
    const auto slot = format::fragment_slot(static_cast<int>(row_bits >> 16 & 0xFF),
                                            static_cast<int>(k % format::tile_k));
    const int target = lane == slot.lane ? 4 * slot.fragment + slot.index / 2 : -1;
    const std::uint32_t select = slot.index % 2 ? 0x5410u : 0x3254u;
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i == target) fragments[i] = __byte_perm(fragments[i], row_bits, select);
    }
  }
};

struct NoExceptions {
  __device__ __forceinline__ NoExceptions(const ExceptionView&, std::uint32_t, int) {}
  __device__ __forceinline__ void patch(std::uint32_t (&)[16], int, int) {}
};

/// One consumer warpgroup's main loop.
template <plan::TileConfig C>
struct TileConsumer {
  using Exceptions =
      std::conditional_t<C.encoding == Encoding::split12, ExceptionStream, NoExceptions>;
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);

  const TileArgs& args;
  const TileShare& share;
  TileBarriers<C>& barriers;
  const int lane;
  const int k_group;
  std::uint32_t x_ring;
  std::uint32_t w_ring;  // this lane's bytes of its row tile in slot 0
  Exceptions exceptions;
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
        exceptions(args.exceptions,
                   static_cast<std::uint32_t>(
                       min(share.row_tile + warpgroup % C.row_blocks * 4 + warp_in_group,
                           share.last_row_tile)),
                   lane),
        x_at{k_group},
        w_at{k_group} {
    constexpr plan::TileLayout layout = plan::tile_layout(C);
    x_ring = smem + layout.x;
    w_ring =
        smem + layout.w + (warpgroup % C.row_blocks * 4 + warp_in_group) * tile_bytes + lane * 16;
  }

  /// Waits for a k tile of weights, frees its slot, decodes it and patches its exceptions.
  __device__ __forceinline__ void decode(std::uint32_t (&fragments)[16], int local_k_tile) {
    ptx::mbarrier_wait(ptx::shared_address(&barriers.w_full[w_at.slot]), w_at.parity);
    const std::uint32_t from = w_ring + w_at.slot * (4 * C.row_blocks * tile_bytes);
    LaneTile<C.encoding> tile;
    tile.load(from);
    std::uint32_t arrived = 0;
#pragma unroll
    for (const uint4& plane : tile.plane) arrived ^= plane.x;
    ptx::mbarrier_arrive(
        ptx::address_after(ptx::shared_address(&barriers.w_empty[w_at.slot]), arrived, args.zero));
    w_at.advance(C.k_groups);
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      std::uint32_t a[4];
      tile.fragment(f, args.decode.window, a);
#pragma unroll
      for (int i = 0; i < 4; ++i) fragments[4 * f + i] = a[i];
    }
    exceptions.patch(fragments, share.k_tile_begin + local_k_tile, lane);
  }

  /// Starts the four wgmma of a k tile.
  __device__ __forceinline__ void multiply(float (&sums)[C.tokens / 2],
                                           std::uint32_t (&fragments)[16]) {
    ptx::mbarrier_wait(ptx::shared_address(&barriers.x_full[x_at.slot]), x_at.parity);
    const std::uint64_t x = ptx::wgmma_descriptor(x_ring + x_at.slot * C.tokens * 128);
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
      decode(fragments[0], i);
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
        decode(next, i);
        return true;
      };
      while (step(fragments[0], fragments[1]) && step(fragments[1], fragments[0])) {
      }
    }
    ptx::wgmma_wait<0>();
    ptx::pin_registers(sums);
  }
};

/// Sends every partner its token units, adds what the others sent, and stores the result.
template <plan::TileConfig C>
struct TileEpilogue {
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
        part = ptx::load_shared_float4(smem + exchange_offset(warpgroup, p, Owner) +
                                       (u - plan::first_unit(C, Owner)) * unit_bytes +
                                       static_cast<std::uint32_t>(thread) * 16);
      }
      sum.x += part.x;
      sum.y += part.y;
      sum.z += part.z;
      sum.w += part.w;
    }
    return sum;
  }

  __device__ __forceinline__ std::uint32_t pack(float a, float b) const {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return reinterpret_cast<const std::uint32_t&>(pair);
  }

  /// Adds and writes this partner's units to the staging tile, then to out.
  template <int Owner>
  __device__ __forceinline__ void finish(const float (&sums)[C.tokens / 2]) const {
    constexpr int begin = plan::first_unit(C, Owner);
    constexpr int end = plan::first_unit(C, Owner + 1);
    const int lane = thread % 32;
    const int warp = thread / 32;
    const std::uint32_t staging = smem + plan::tile_layout(C).staging +
                                  warpgroup * plan::max_units(C) * 8 * plan::staging_row_bytes;
    if constexpr (partners > 1) {
      ptx::mbarrier_wait_cluster(ptx::shared_address(&barriers.received[warpgroup]), 0);
    }
#pragma unroll
    for (int u = begin; u < end; u += 2) {  // 16 tokens x 16 features a stmatrix
      const float4 a = total<Owner>(sums, u);
      const float4 b = u + 1 < end ? total<Owner>(sums, u + 1) : a;
      const std::uint32_t r[4] = {pack(a.x, a.y), pack(a.z, a.w), pack(b.x, b.y), pack(b.z, b.w)};
      // Stored matrix l / 8: features 8 * (l / 8 % 2) of the warp's 16, tokens 8 * (l / 16).
      int token = (u - begin) * 8 + lane % 8 + lane / 16 * 8;
      if (u + 1 >= end) token = (u - begin) * 8 + lane % 8;  // the same values once more
      ptx::stmatrix_x4_trans(
          staging + token * plan::staging_row_bytes + warp * 32 + lane / 8 % 2 * 16, r);
    }
    ptx::named_barrier_sync(1 + warpgroup, 128);
    store_staged(staging, begin * 8, (end - begin) * 8);
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
  __device__ __forceinline__ void finish_as(const float (&sums)[C.tokens / 2], int me) const {
    if (me == Owner) {
      finish<Owner>(sums);
    } else if constexpr (Owner + 1 < partners) {
      finish_as<Owner + 1>(sums, me);
    }
  }

  __device__ __forceinline__ void run(const float (&sums)[C.tokens / 2]) const {
    const int me = static_cast<int>(share.rank) * C.k_groups + warpgroup / C.row_blocks;
    if constexpr (partners > 1) send(sums, me, std::make_integer_sequence<int, partners>{});
    finish_as(sums, me);
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
  if (args.dependent) ptx::launch_dependents();
  __syncthreads();
  if constexpr (C.cluster > 1) ptx::cluster_arrive_relaxed();  // this CTA's barriers are ready
  // Only the weights may be read before the grid that writes x is complete.
  if (args.dependent && warp != 4 * consumers) ptx::grid_dependency_wait();

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
    float sums[C.tokens / 2] = {};
    TileConsumer<C> consumer(args, share, barriers, smem, warp / 4, warp % 4, lane);
    consumer.run(sums);
    if constexpr (C.cluster > 1) ptx::cluster_wait();  // the others' barriers are ready
    TileEpilogue<C>{args, share, barriers, smem, warp / 4, static_cast<int>(threadIdx.x) % 128}.run(
        sums);
  }
  // No closing cluster barrier: a warpgroup leaves when all that is sent to it has arrived.
}

}  // namespace slimgemm::cuda
