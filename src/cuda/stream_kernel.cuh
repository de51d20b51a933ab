// SPDX-License-Identifier: Apache-2.0
// The stream kernel: a linear layer for few tokens, bound by reading the packed weights.
//
//   HBM: packed tiles of 16 rows x 64 k        x (m x K)                 exception groups
//        |  cp.async, 16 bytes a lane            |  TMA box                |
//        v                                       v                         v
//   ring of `stages` tiles, private to a lane    ring of `x_slots` chunks  exception warps: their
//        |  ld.shared, decode in registers       |  ldmatrix               own MMAs on gathered x
//        v                                       v                         |
//   consumer warps (row_groups x k_warps): mma.sync m16n8k16, A = weights, B = x
//        |                                                                 |
//        v  partial sums over k_warps meet in shared memory, in fixed order
//   [cluster > 1: each CTA sends its sums to the CTA that owns them, in fixed order]
//        v                                                                 v
//   out = (sum - stand_ins) * scale + true_weights, stored as BF16 or FP32
//
// Who waits where: a consumer lane copies and reads its own bytes of the weight ring, so wait_group
// is the only synchronisation there. A chunk of x has a full barrier (TMA's bytes, or the lanes'
// stores) and an empty barrier (all consumer threads); the producer warp refills a slot when all
// have left it. Neither ring waits for the other when it is filled for the first time. Two CTA
// barriers end the loop: before the partial sums (only where they share memory with the rings) and
// after.
#pragma once

#include "cuda/exceptions.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/stream_kernel_args.hpp"
#include "cuda/weights.cuh"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <cstdint>

namespace slimgemm::cuda {

/// One pair of barriers for each slot of x.
template <plan::StreamConfig C>
struct StreamBarriers {
  std::uint64_t x_full[C.x_slots];
  std::uint64_t x_empty[C.x_slots];
};

/// What every warp of the CTA knows about its share of the work.
struct StreamShare {
  int k_tile_begin;
  int k_tile_end;
  int chunks;          // of k_warps k tiles
  int row_tile;        // first of the CTA, in the matrix
  std::int64_t token;  // first of the CTA
  int tokens;          // valid ones
  std::uint32_t rank;  // in the cluster
};

template <plan::StreamConfig C>
__device__ __forceinline__ StreamShare stream_share(const StreamArgs& args) {
  StreamShare share;
  share.rank = C.cluster > 1 ? ptx::cluster_rank() : 0;
  const int group = blockIdx.x / C.cluster;
  const int rank = static_cast<int>(share.rank);
  share.k_tile_begin = static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * rank / C.cluster);
  share.k_tile_end =
      static_cast<int>(static_cast<std::int64_t>(args.k_tiles) * (rank + 1) / C.cluster);
  share.chunks = (share.k_tile_end - share.k_tile_begin + C.k_warps - 1) / C.k_warps;
  share.row_tile = args.first_row_tile + group * plan::cta_row_tiles(C);
  share.token = static_cast<std::int64_t>(blockIdx.y) * plan::cta_tokens(C);
  const std::int64_t left = args.m - share.token;
  share.tokens = left < plan::cta_tokens(C) ? static_cast<int>(left) : plan::cta_tokens(C);
  return share;
}

/// Offset of 16-byte piece `piece` of line `line` (128 bytes: 64 k of one token) in a slot: TMA's
/// 128-byte swizzle, on slots aligned to 1024 bytes.
__device__ __forceinline__ int swizzled_offset(int line, int piece) {
  return line * 128 + ((piece ^ (line & 7)) << 4);
}

/// Copies chunk `chunk` of x without TMA, by the whole warp: for x that is not aligned to 16 bytes,
/// and for the last k tile if K is not a multiple of 64. Columns from K on become zero.
template <plan::StreamConfig C>
__device__ __forceinline__ void copy_x_chunk(const StreamArgs& args, const StreamShare& share,
                                             int chunk, std::uint32_t slot, int lane) {
  const int pieces = C.k_warps * args.x_rows * 8;  // of 16 bytes
#pragma unroll 1
  for (int i = lane; i < pieces; i += 32) {
    const int line = i / 8;
    const int piece = i % 8;
    const int token = line % args.x_rows;
    const std::int64_t k_tile = share.k_tile_begin + chunk * C.k_warps + line / args.x_rows;
    const std::int64_t k0 = k_tile * format::tile_k + piece * 8;
    const std::uint16_t* from = args.x + (share.token + token) * args.x_row_stride + k0;
    std::uint32_t words[4] = {};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (token < share.tokens && k0 + j < args.k) {
        words[j / 2] |= static_cast<std::uint32_t>(__ldg(from + j)) << 16 * (j % 2);
      }
    }
    ptx::store_shared_16(slot + swizzled_offset(line, piece),
                         make_uint4(words[0], words[1], words[2], words[3]));
  }
}

/// The producer warp: keeps the ring of x chunks full.
template <plan::StreamConfig C>
struct StreamProducer {
  const StreamArgs& args;
  const StreamShare& share;
  StreamBarriers<C>& barriers;
  std::uint32_t ring;
  int slot_bytes;
  int lane;
  int chunk = 0;
  int slot = 0;
  std::uint32_t parity = 1;  // of the round before

  /// Arrivals that complete a full barrier: only the one that expects TMA's bytes, or every lane's.
  __device__ __forceinline__ int full_arrivals() const { return args.all_x_by_tma ? 1 : 32; }

  __device__ __forceinline__ void init_barriers() {
    if (lane == 0) {
      for (int s = 0; s < C.x_slots; ++s) {
        ptx::mbarrier_init(ptx::shared_address(&barriers.x_full[s]), full_arrivals());
        ptx::mbarrier_init(ptx::shared_address(&barriers.x_empty[s]), 32 * plan::consumer_warps(C));
      }
      ptx::fence_mbarrier_init();
      ptx::fence_proxy_async();
    }
    __syncwarp();
  }

  __device__ __forceinline__ void copy_next() {
    const std::uint32_t to = ring + slot * slot_bytes;
    const std::uint32_t full = ptx::shared_address(&barriers.x_full[slot]);
    if (chunk >= C.x_slots) {
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_empty[slot]), parity);
    }
    const int k_tile = share.k_tile_begin + chunk * C.k_warps;
    const std::int64_t k_end =
        std::int64_t{min(k_tile + C.k_warps, share.k_tile_end)} * format::tile_k;
    const bool whole = k_end <= args.k;
    if (args.x_map_valid && whole) {
      if (lane == 0) {
        ptx::mbarrier_arrive_expect(full, C.k_warps * args.x_rows * 128);
        ptx::tma_load_3d(to, &args.x_map, 0, static_cast<int>(share.token), k_tile, full);
      } else if (!args.all_x_by_tma) {
        ptx::mbarrier_arrive(full);
      }
    } else {
      copy_x_chunk<C>(args, share, chunk, to, lane);
      ptx::fence_proxy_async();  // TMA may fill the slot next
      ptx::mbarrier_arrive(full);
    }
    __syncwarp();
    ++chunk;
    if (++slot == C.x_slots) {
      slot = 0;
      parity ^= 1;
    }
  }

  /// Fills the ring for the first time.
  __device__ __forceinline__ void start() {
    if (!args.all_x_by_tma) return;
    while (chunk < C.x_slots && chunk < share.chunks) copy_next();
  }
  __device__ __forceinline__ void run() {
    while (chunk < share.chunks) copy_next();
  }
};

/// An exception warp: leaves stand_ins and true_weights of its row tiles in shared memory, FP32
/// [2][token][row].
template <plan::StreamConfig C>
__device__ void compute_corrections(const StreamArgs& args, const StreamShare& share,
                                    float* corrections, int exception_warp, int lane) {
  constexpr int stride = plan::partial_stride(C);
  float* const stand_in_sums = corrections;
  float* const true_sums = corrections + plan::cta_tokens(C) * stride;
  const TokenBlock block{args.x + share.token * args.x_row_stride, args.x_row_stride, share.tokens};
  const int last_row_tile = args.first_row_tile + args.row_tiles - 1;
  for (int r = exception_warp; r < plan::cta_row_tiles(C); r += plan::exception_warps(C)) {
    if (share.row_tile + r > last_row_tile) break;
    float stand_ins[C.token_tiles][4] = {};
    float true_weights[C.token_tiles][4] = {};
    accumulate_exceptions<C.token_tiles>(stand_ins, true_weights, args.exceptions,
                                         share.row_tile + r, block, lane);
#pragma unroll
    for (int t = 0; t < C.token_tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = 8 * t + 2 * (lane % 4) + i % 2;
        const int row = 16 * r + lane / 4 + 8 * (i / 2);
        stand_in_sums[token * stride + row] = stand_ins[t][i];
        true_sums[token * stride + row] = true_weights[t][i];
      }
    }
  }
}

/// A consumer warp: streams its tiles through its private ring and multiplies them with x.
template <plan::StreamConfig C>
struct StreamConsumer {
  using Tile = LaneTile<C.encoding>;
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);
  static constexpr int stage_bytes = C.row_tiles * tile_bytes;

  const StreamArgs& args;
  const StreamShare& share;
  const int lane;
  const int k_warp;
  std::uint32_t ring;    // this lane's bytes of stage 0
  std::uint32_t x_ring;  // shared address of slot 0
  int x_slot_bytes;
  const unsigned char* tiles[C.row_tiles];  // this lane's bytes of the warp's first k tile
  std::uint32_t x_line[C.token_tiles];      // offset of the ldmatrix row in a slot
  std::uint32_t x_swizzle[C.token_tiles];   // line & 7
  float sums[C.row_tiles][C.token_tiles][4] = {};

  __device__ __forceinline__ StreamConsumer(const StreamArgs& args, const StreamShare& share,
                                            std::uint32_t smem, const plan::StreamLayout& layout,
                                            int warp, int lane)
      : args(args), share(share), lane(lane), k_warp(warp % C.k_warps) {
    ring = smem + warp * C.stages * stage_bytes + lane * 16;
    x_ring = smem + layout.x;
    x_slot_bytes = layout.x_slot_bytes;
    const int last_row_tile = args.first_row_tile + args.row_tiles - 1;
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) {
      // Row tiles past the end repeat the last one; what they give is not stored.
      const int row_tile =
          min(share.row_tile + (warp / C.k_warps) * C.row_tiles + r, last_row_tile);
      const std::int64_t tile =
          static_cast<std::int64_t>(row_tile) * args.k_tiles + share.k_tile_begin + k_warp;
      tiles[r] = args.tiles + tile * tile_bytes + lane * 16;
    }
#pragma unroll
    for (int t = 0; t < C.token_tiles; ++t) {
      const int token = min(8 * t + lane % 8, args.x_rows - 1);
      const int line = k_warp * args.x_rows + token;
      x_line[t] = line * 128;
      x_swizzle[t] = line & 7;
    }
  }

  __device__ __forceinline__ bool has_tile(int step) const {
    return share.k_tile_begin + step * C.k_warps + k_warp < share.k_tile_end;
  }

  /// Starts the copy of this warp's tiles of `step` and closes a cp.async group, empty or not.
  __device__ __forceinline__ void fetch(int step) {
    if (has_tile(step)) {
      const std::uint32_t to = ring + (step % C.stages) * stage_bytes;
      const std::int64_t from = static_cast<std::int64_t>(step) * C.k_warps * tile_bytes;
#pragma unroll
      for (int r = 0; r < C.row_tiles; ++r) {
#pragma unroll
        for (int p = 0; p < Tile::planes; ++p) {
          ptx::cp_async_16(to + r * tile_bytes + p * format::plane_bytes,
                           tiles[r] + from + p * format::plane_bytes);
        }
      }
    }
    ptx::cp_async_commit();
  }

  /// sums += fragment * b for one row tile. The tensor core truncates when it adds to an
  /// accumulator; FP32 layers keep their precision by starting every k16 block at zero, small terms
  /// first, and adding it in plain FP32.
  __device__ __forceinline__ void multiply_fragment(float (&to)[C.token_tiles][4],
                                                    const std::uint32_t (&a)[Tile::terms][4],
                                                    const std::uint32_t (&b)[C.token_tiles][4],
                                                    int f) {
#pragma unroll
    for (int t = 0; t < C.token_tiles; ++t) {
      if constexpr (Tile::terms == 1) {
        ptx::mma_m16n8k16(to[t], a[0], b[t][2 * f], b[t][2 * f + 1]);
      } else {
        float part[4] = {};
#pragma unroll
        for (int term = Tile::terms - 1; term >= 0; --term) {
          ptx::mma_m16n8k16(part, a[term], b[t][2 * f], b[t][2 * f + 1]);
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) to[t][i] += part[i];
      }
    }
  }

  /// The warp's tiles of a step times x.
  __device__ __forceinline__ void multiply(int step, std::uint32_t x_slot) {
    const std::uint32_t stage = ring + (step % C.stages) * stage_bytes;
    Tile tile[C.row_tiles];
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) tile[r].load(stage + r * tile_bytes);
      // 32 k at a time: one ldmatrix a token tile, two fragments. The three terms of FP32 weights
      // are long code, which a first run fetches from HBM: that loop stays rolled.
#pragma unroll(Tile::terms == 1 ? 2 : 1)
    for (int half = 0; half < 2; ++half) {
      std::uint32_t b[C.token_tiles][4];
#pragma unroll
      for (int t = 0; t < C.token_tiles; ++t) {
        const std::uint32_t piece = (4 * half + lane / 8) ^ x_swizzle[t];
        ptx::ldmatrix_x4(b[t], x_slot + x_line[t] + piece * 16);
      }
#pragma unroll
      for (int r = 0; r < C.row_tiles; ++r) {
#pragma unroll
        for (int f = 0; f < 2; ++f) {
          std::uint32_t a[Tile::terms][4];
          tile[r].fragment(stage + r * tile_bytes, 2 * half + f, args.nonfinite, a);
          multiply_fragment(sums[r], a, b, f);
        }
      }
    }
  }

  /// Fills the ring for the first time.
  __device__ __forceinline__ void start() {
#pragma unroll
    for (int s = 0; s < C.stages; ++s) fetch(s);
  }

  __device__ __forceinline__ void run(StreamBarriers<C>& barriers) {
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll(C.token_tiles >= 8 || C.encoding == Encoding::raw32 ? 1 : 2)
    for (int step = 0; step < share.chunks; ++step) {
      ptx::cp_async_wait<C.stages - 1>();
      ptx::mbarrier_wait(ptx::shared_address(&barriers.x_full[slot]), parity);
      if (has_tile(step)) multiply(step, x_ring + slot * x_slot_bytes);
      if (step + C.x_slots < share.chunks) {  // the slot will be filled again
        ptx::mbarrier_arrive(ptx::shared_address(&barriers.x_empty[slot]));
      }
      fetch(step + C.stages);
      if (++slot == C.x_slots) {
        slot = 0;
        parity ^= 1;
      }
    }
    ptx::cp_async_wait<0>();
  }

  /// Writes the warp's partial sums, FP32 [k_warps][token][row].
  __device__ __forceinline__ void store_partials(float* partials, int warp) const {
    constexpr int stride = plan::partial_stride(C);
    float* const mine =
        partials + k_warp * plan::cta_tokens(C) * stride + (warp / C.k_warps) * C.row_tiles * 16;
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) {
#pragma unroll
      for (int t = 0; t < C.token_tiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = 8 * t + 2 * (lane % 4) + i % 2;
          mine[token * stride + 16 * r + lane / 4 + 8 * (i / 2)] = sums[r][t][i];
        }
      }
    }
  }
};

/// Sums a pair of adjacent rows of one token over the warps that shared k, in fixed order.
template <plan::StreamConfig C>
__device__ __forceinline__ float2 sum_partials(const float* partials, int token, int row) {
  constexpr int stride = plan::partial_stride(C);
  const float* from = partials + token * stride + row;
  float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
  for (int w = 0; w < C.k_warps; ++w) {
    const float2 part = *reinterpret_cast<const float2*>(from + w * plan::cta_tokens(C) * stride);
    sum.x += part.x;
    sum.y += part.y;
  }
  return sum;
}

/// Applies exceptions and scale and stores two rows of one token.
template <plan::StreamConfig C>
__device__ __forceinline__ void store_result(const StreamArgs& args, const StreamShare& share,
                                             const float* corrections, int token, int row,
                                             float2 sum) {
  if constexpr (plan::has_exceptions(C)) {
    constexpr int stride = plan::partial_stride(C);
    const float* from = corrections + token * stride + row;
    const float2 stand_ins = *reinterpret_cast<const float2*>(from);
    const float2 true_weights =
        *reinterpret_cast<const float2*>(from + plan::cta_tokens(C) * stride);
    sum.x = (sum.x - stand_ins.x) * args.scale + true_weights.x;
    sum.y = (sum.y - stand_ins.y) * args.scale + true_weights.y;
  }
  const std::int64_t column =
      static_cast<std::int64_t>(share.row_tile - args.first_row_tile) * 16 + row;
  const std::int64_t left = args.rows - column;
  if (left <= 0) return;
  const std::int64_t at = (share.token + token) * args.rows + column;
  if constexpr (C.encoding == Encoding::raw32) {
    auto* out = static_cast<float*>(args.out) + at;
    out[0] = sum.x;
    if (left > 1) out[1] = sum.y;
  } else {
    auto* out = static_cast<__nv_bfloat16*>(args.out) + at;
    if (left > 1 && (reinterpret_cast<std::uintptr_t>(out) & 3) == 0) {
      *reinterpret_cast<__nv_bfloat162*>(out) = __floats2bfloat162_rn(sum.x, sum.y);
    } else {
      out[0] = __float2bfloat16_rn(sum.x);
      if (left > 1) out[1] = __float2bfloat16_rn(sum.y);
    }
  }
}

/// Reduces the partial sums of the CTA (and of its cluster) and stores the result.
template <plan::StreamConfig C>
__device__ __forceinline__ void reduce_and_store(const StreamArgs& args, const StreamShare& share,
                                                 const float* partials, const float* corrections,
                                                 float* exchange) {
  constexpr int row_pairs = plan::cta_row_tiles(C) * 8;
  const int pairs = share.tokens * row_pairs;
  if constexpr (C.cluster == 1) {
    for (int i = threadIdx.x; i < pairs; i += plan::cta_threads(C)) {
      const int token = i / row_pairs;
      const int row = 2 * (i % row_pairs);
      store_result<C>(args, share, corrections, token, row, sum_partials<C>(partials, token, row));
    }
  } else {
    // Every CTA owns a run of pairs. exchange: float2 [source rank][pair of the owner].
    const int owned = (pairs + C.cluster - 1) / C.cluster;
    const std::uint32_t mine = ptx::shared_address(exchange) + share.rank * owned * 8;
    for (int i = threadIdx.x; i < pairs; i += plan::cta_threads(C)) {
      const float2 sum = sum_partials<C>(partials, i / row_pairs, 2 * (i % row_pairs));
      const int owner = i / owned;
      ptx::store_cluster_8(ptx::map_to_rank(mine + (i - owner * owned) * 8, owner), sum);
    }
    ptx::cluster_arrive();
    ptx::cluster_wait();
    const int first = static_cast<int>(share.rank) * owned;
    const int count = min(owned, pairs - first);
    for (int i = threadIdx.x; i < count; i += plan::cta_threads(C)) {
      float2 sum = make_float2(0.0f, 0.0f);
#pragma unroll
      for (int s = 0; s < C.cluster; ++s) {
        const float2 part = reinterpret_cast<const float2*>(exchange)[s * owned + i];
        sum.x += part.x;
        sum.y += part.y;
      }
      const int pair = first + i;
      store_result<C>(args, share, corrections, pair / row_pairs, 2 * (pair % row_pairs), sum);
    }
  }
}

/// Index: entry of plan::stream_table. (nvcc 13.0 can't name a kernel by a struct of a namespace.)
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::stream_table[Index]),
                                  plan::stream_table[Index].min_ctas)
    stream_kernel(const __grid_constant__ StreamArgs args) {
  constexpr plan::StreamConfig C = plan::stream_table[Index];
  constexpr int consumers = plan::consumer_warps(C);
  extern __shared__ __align__(1024) unsigned char smem[];

  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = threadIdx.x % 32;
  const StreamShare share = stream_share<C>(args);
  const plan::StreamLayout layout = plan::stream_layout(C, args.x_rows);
  float* const partials = reinterpret_cast<float*>(smem + layout.partials);
  float* const corrections = reinterpret_cast<float*>(smem + layout.corrections);
  float* const exchange = reinterpret_cast<float*>(smem + layout.exchange);
  auto& barriers = *reinterpret_cast<StreamBarriers<C>*>(smem + layout.barriers);

  StreamConsumer<C> consumer(args, share, ptx::shared_address(smem), layout,
                             warp < consumers ? warp : 0, lane);
  StreamProducer<C> producer{
      args, share, barriers, ptx::shared_address(smem) + layout.x, layout.x_slot_bytes, lane};
  if (warp == consumers) {
    producer.init_barriers();
    producer.start();
  } else if (warp < consumers) {
    consumer.start();
  }
  __syncthreads();
  if constexpr (C.cluster > 1) ptx::cluster_arrive_relaxed();  // this CTA is there

  if (warp < consumers) {
    consumer.run(barriers);
  } else if (warp == consumers) {
    producer.run();
  } else {
    compute_corrections<C>(args, share, corrections, warp - consumers - 1, lane);
  }

  if constexpr (C.cluster > 1) ptx::cluster_wait();  // the others are there, too
  if (layout.partials == 0) __syncthreads();         // the rings' memory is free
  if (warp < consumers) consumer.store_partials(partials, warp);
  __syncthreads();
  reduce_and_store<C>(args, share, partials, corrections, exchange);
}

}  // namespace slimgemm::cuda
