// SPDX-License-Identifier: Apache-2.0
// The stream kernel: a linear layer for few tokens, bound by reading the packed weights.
//
//   HBM: packed tiles of 16 rows x 64 k       x (m x K)             exception groups
//        |                                      |                         |
//        +----- cp.async, 16 bytes a lane ------+                         v
//        v                                      v                  exception warps: their
//   a warp's own ring of `stages` k tiles: weights and x           own MMAs on gathered x
//        |  ld.shared, decode in registers      |  ldmatrix               |
//        v                                      v                         |
//   k_warps consumer warps: mma.sync m16n8k16, A = weights, B = x         |
//        |                                                                |
//        v  sums meet in shared memory, over k_warps in fixed order       |
//   [cluster > 1: st.async to the CTA that owns them, in fixed order]     |
//        v                                                                v
//   out = (sum - stand_ins) + true_weights, stored as BF16 or FP32
//
// Nobody waits for another warp before the sums meet: a warp takes every k_warps-th k tile and
// copies both its weights and its x, so that cp.async.wait_group and __syncwarp are all the
// synchronisation that the main loop has. One CTA barrier ends it, two where the sums share memory
// with the rings.
#pragma once

#include "cuda/exceptions.cuh"
#include "cuda/ptx/barrier.cuh"
#include "cuda/weights.cuh"
#include "plan/kernel_table.hpp"

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace slimgemm::cuda {

/// A CTA's part of the problem.
struct StreamShare {
  int rank;  // in the cluster
  int k_tile_begin;
  int k_tile_end;
  int row_tile;  // first, in the matrix
  int token;     // first
  int tokens;    // valid ones
};

template <plan::StreamConfig C>
__device__ __forceinline__ StreamShare stream_share(const StreamArgs& args) {
  StreamShare share;
  share.rank = static_cast<int>(blockIdx.x % C.cluster);
  const int whole = args.k_tiles / C.cluster;
  const int rest = args.k_tiles % C.cluster;
  share.k_tile_begin = whole * share.rank + rest * share.rank / C.cluster;
  share.k_tile_end = whole * (share.rank + 1) + rest * (share.rank + 1) / C.cluster;
  share.row_tile = args.first_row_tile + static_cast<int>(blockIdx.x / C.cluster) * C.row_tiles;
  share.token = static_cast<int>(blockIdx.y) * plan::cta_tokens(C);
  share.tokens = min(args.m - share.token, plan::cta_tokens(C));
  return share;
}

// x of a k tile in shared memory: a line of 128 bytes a token, whose 16-byte pieces are permuted so
// that ldmatrix has no bank conflicts.
inline constexpr int x_line_bytes = format::tile_k * 2;

__device__ __forceinline__ std::uint32_t x_piece(unsigned token, unsigned piece) {
  return token * x_line_bytes + ((piece ^ (token & 7)) << 4);
}

/// Offsets of a lane's ldmatrix rows in a k tile of x.
template <int TokenTiles>
__device__ __forceinline__ void find_x_lines(std::uint32_t (&x_line)[TokenTiles], int tokens,
                                             unsigned lane) {
#pragma unroll
  for (int t = 0; t < TokenTiles; ++t) {
    x_line[t] = x_piece(min(8 * t + lane % 8, static_cast<unsigned>(tokens - 1)), lane / 8);
  }
}

/// B fragments of the k tile of x at `x`: of k16 block f, registers 2f and 2f + 1.
template <int TokenTiles>
__device__ __forceinline__ void load_x_tile(std::uint32_t (&b)[TokenTiles][8], std::uint32_t x,
                                            const std::uint32_t (&x_line)[TokenTiles]) {
#pragma unroll
  for (int t = 0; t < TokenTiles; ++t) {
    std::uint32_t half[4];
    ptx::ldmatrix_x4(half, x + x_line[t]);
#pragma unroll
    for (int i = 0; i < 4; ++i) b[t][i] = half[i];
    ptx::ldmatrix_x4(half, x + (x_line[t] ^ 64));
#pragma unroll
    for (int i = 0; i < 4; ++i) b[t][4 + i] = half[i];
  }
}

/// sums += a tile of BF16 weights times x's fragments, one row tile.
template <int TokenTiles, class Tile>
__device__ __forceinline__ void multiply_tile(float (&sums)[TokenTiles][4], const Tile& tile,
                                              std::uint32_t window,
                                              const std::uint32_t (&b)[TokenTiles][8]) {
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    std::uint32_t a[4];
    tile.fragment(f, window, a);
#pragma unroll
    for (int t = 0; t < TokenTiles; ++t) {
      ptx::mma_m16n8k16(sums[t], a, b[t][2 * f], b[t][2 * f + 1]);
    }
  }
}

/// A consumer warp: copies its k tiles of weights and x into its ring and multiplies them.
template <plan::StreamConfig C>
struct StreamConsumer {
  using Tile = LaneTile<C.encoding>;
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);
  static constexpr int stage_bytes = C.row_tiles * tile_bytes;

  const StreamArgs& args;
  const unsigned lane;
  const int tokens;
  int steps;                                // k tiles of this warp
  int k_tile;                               // its first
  const unsigned char* tiles[C.row_tiles];  // this lane's bytes of that k tile
  const unsigned char* x;  // this lane's 16 bytes of that k tile, of its first token
  std::uint32_t ring;      // this lane's bytes of stage 0
  std::uint32_t x_ring;
  int x_stage_bytes;
  float sums[C.row_tiles][C.token_tiles][4] = {};

  /// Asks for the first weights before anything else is computed.
  __device__ __forceinline__ StreamConsumer(const StreamArgs& args, const StreamShare& share,
                                            std::uint32_t smem, unsigned warp, unsigned lane)
      : args(args), lane(lane), tokens(share.tokens) {
    k_tile = share.k_tile_begin + static_cast<int>(warp);
    steps = (share.k_tile_end - k_tile + C.k_warps - 1) / C.k_warps;
    ring = smem + warp * (C.stages * stage_bytes) + lane * 16;
    tiles[0] = args.tiles + share.row_tile * args.row_tile_bytes +
               (static_cast<std::uint64_t>(k_tile) * tile_bytes + lane * 16);
#pragma unroll
    for (int r = 1; r < C.row_tiles; ++r) {
      // Row tiles past the end repeat the last one; what they give is not stored.
      const bool exists = share.row_tile + r <= args.last_row_tile;
      tiles[r] = tiles[r - 1] + (exists ? args.row_tile_bytes : 0);
    }
    if (steps > 0) fetch_weights(0, 0);
    x = reinterpret_cast<const unsigned char*>(args.x) +
        static_cast<std::uint64_t>(share.token + lane / 8) * args.x_stride_bytes +
        (static_cast<std::uint64_t>(k_tile) * x_line_bytes + lane % 8 * 16);
    x_stage_bytes = args.x_rows * x_line_bytes;
    x_ring = smem + plan::weight_ring_bytes(C) + warp * (C.stages * x_stage_bytes);
  }

  __device__ __forceinline__ void fetch_weights(int step, int stage) {
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) {
#pragma unroll
      for (int p = 0; p < Tile::planes; ++p) {
        ptx::cp_async_16(ring + stage * stage_bytes + r * tile_bytes + p * format::plane_bytes,
                         tiles[r] + static_cast<std::uint64_t>(step) * (C.k_warps * tile_bytes) +
                             p * format::plane_bytes);
      }
    }
  }

  /// Copies x of one k tile. Columns from K on become zero; Whole: there are none.
  template <bool Whole>
  __device__ __forceinline__ void fetch_x(int step, int stage) {
    const unsigned char* from = x + static_cast<std::uint64_t>(step) * (C.k_warps * x_line_bytes);
    const std::uint32_t to = x_ring + stage * x_stage_bytes;
    // Elements that exist from this lane's piece on.
    const int left =
        args.k - (k_tile + step * C.k_warps) * format::tile_k - static_cast<int>(lane % 8 * 8);
#pragma unroll
    for (unsigned j = 0; j < 2 * C.token_tiles; ++j) {
      const unsigned token = 4 * j + lane / 8;
      if (token >= static_cast<unsigned>(tokens)) break;
      const std::uint32_t line = to + x_piece(token, lane % 8);
      const unsigned char* source = from + static_cast<std::uint64_t>(4 * j) * args.x_stride_bytes;
      if constexpr (C.x_access == plan::XAccess::any) {
        store_elements(line, reinterpret_cast<const std::uint16_t*>(source), left);
      } else if constexpr (Whole) {
        ptx::cp_async_16(line, source);
      } else {
        ptx::cp_async_16(line, source, min(max(left, 0) * 2, 16));
      }
    }
  }

  /// Eight elements one by one, of which `left` exist.
  __device__ __forceinline__ static void store_elements(std::uint32_t to, const std::uint16_t* from,
                                                        int left) {
    std::uint32_t words[4] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i < left) words[i / 2] |= static_cast<std::uint32_t>(__ldcg(from + i)) << 16 * (i % 2);
    }
    ptx::store_shared_16(to, make_uint4(words[0], words[1], words[2], words[3]));
  }

  template <bool Whole>
  __device__ __forceinline__ void fetch(int step, int stage) {
    if (step < steps) {
      fetch_weights(step, stage);
      fetch_x<Whole>(step, stage);
    }
    ptx::cp_async_commit();
  }

  /// Fills the ring for the first time; a cp.async group a stage. The first weights are on their
  /// way.
  template <bool Whole>
  __device__ __forceinline__ void start() {
    if (args.dependent) [[unlikely]] {
      start_dependent<Whole>();
      return;
    }
    if (steps > 0) fetch_x<Whole>(0, 0);
    ptx::cp_async_commit();
#pragma unroll 1
    for (int s = 1; s < C.stages; ++s) fetch<Whole>(s, s);
  }

  /// The same where the weights need not wait for the grid that writes x.
  template <bool Whole>
  __device__ __forceinline__ void start_dependent() {
#pragma unroll 1
    for (int s = 1; s < C.stages; ++s) {
      if (s < steps) fetch_weights(s, s);
    }
    ptx::grid_dependency_wait();
#pragma unroll 1
    for (int s = 0; s < C.stages; ++s) {
      if (s < steps) fetch_x<Whole>(s, s);
      ptx::cp_async_commit();
    }
  }

  /// sums += (sum of a's terms) * b for one row tile. The tensor core truncates when it adds to an
  /// accumulator; FP32 layers keep their precision by starting every k16 block at zero, small terms
  /// first, and adding it in plain FP32.
  __device__ __forceinline__ static void multiply_terms(float (&to)[C.token_tiles][4],
                                                        const std::uint32_t (&a)[Tile::terms][4],
                                                        const std::uint32_t (&b)[C.token_tiles][8],
                                                        int f) {
#pragma unroll
    for (int t = 0; t < C.token_tiles; ++t) {
      float part[4] = {};
#pragma unroll
      for (int term = Tile::terms - 1; term >= 0; --term) {
        ptx::mma_m16n8k16(part, a[term], b[t][2 * f], b[t][2 * f + 1]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) to[t][i] += part[i];
    }
  }

  /// The k tile in `stage` times x. x_line: offset of this lane's ldmatrix row in a stage of x.
  /// Nonfinite: some FP32 weight is Inf or NaN.
  template <bool Nonfinite>
  __device__ __forceinline__ void multiply(int stage,
                                           const std::uint32_t (&x_line)[C.token_tiles]) {
    std::uint32_t b[C.token_tiles][8];
    load_x_tile(b, x_ring + stage * x_stage_bytes, x_line);
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) {
      const std::uint32_t from = ring + stage * stage_bytes + r * tile_bytes;
      Tile tile;
      tile.load(from);
      if constexpr (Tile::terms == 1) {
        multiply_tile(sums[r], tile, args.decode.window, b);
      } else {
#pragma unroll
        for (int f = 0; f < 4; ++f) {
          std::uint32_t a[Tile::terms][4];
          tile.template terms_of<Nonfinite>(from, f, a);
          multiply_terms(sums[r], a, b, f);
        }
      }
    }
  }

  __device__ __forceinline__ void run() {
    if constexpr (C.encoding == Encoding::raw32) {
      if (args.decode.nonfinite) return run_as<false, true>();
    }
    if constexpr (C.x_access == plan::XAccess::aligned) {
      if (args.k % format::tile_k == 0) return run_as<true, false>();
    }
    run_as<false, false>();
  }

  /// Whole: K is a multiple of 64. Nonfinite: some FP32 weight is Inf or NaN.
  template <bool Whole, bool Nonfinite>
  __device__ __forceinline__ void run_as() {
    start<Whole>();
    std::uint32_t x_line[C.token_tiles];
    find_x_lines(x_line, tokens, lane);
    int stage = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::cp_async_wait<C.stages - 1>();
      __syncwarp();  // the other lanes' x
      multiply<Nonfinite>(stage, x_line);
      __syncwarp();  // every lane has read x
      fetch<Whole>(step + C.stages, stage);
      if (++stage == C.stages) stage = 0;
    }
  }
};

__device__ __forceinline__ float4& operator+=(float4& a, float4 b) {
  a = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  return a;
}

/// Sums of one row tile and one token tile in shared memory: FP32 [lane][4], as mma.sync has them.
/// With g = lane / 4 and t = lane % 4: (row g, token 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t +
/// 1).
inline constexpr int unit_bytes = plan::stream_unit_bytes;

/// An exception warp: leaves stand_ins and true_weights of its row tiles in shared memory,
/// [2][row tile][token tile] units. The row tiles of a CTA are dealt to the ranks of its cluster,
/// those of a rank to its exception warps, which take them one after the other: gathers of many row
/// tiles at a time get into the way of the copies. Short code: a first run fetches it from HBM.
template <plan::StreamConfig C>
struct StreamExceptions {
  static constexpr int stride = C.cluster * C.exception_warps;

  const StreamArgs& args;
  const StreamShare& share;
  std::uint32_t smem;
  int first;  // row tile in the CTA
  int lane;

  __device__ __forceinline__ int row_tile(int r) const {
    return min(share.row_tile + r, args.last_row_tile);
  }
  __device__ __forceinline__ const ExceptionHead* head(int r) const {
    return reinterpret_cast<const ExceptionHead*>(args.tiles + row_tile(r) * args.row_tile_bytes +
                                                  args.exceptions.head_offset);
  }

  __device__ __forceinline__ void run() const {
    const int later = first + stride * (1 + lane / 2);
    if (later < C.row_tiles) ptx::prefetch_l2(&head(later)->groups[lane % 2]);
    const TokenBlock block{reinterpret_cast<const unsigned char*>(args.x) +
                               static_cast<std::uint64_t>(share.token) * args.x_stride_bytes,
                           args.x_stride_bytes, share.tokens};
    const std::uint32_t stand_in = stand_in_bits(args.decode.window);
#pragma unroll 1
    for (int r = first; r < C.row_tiles; r += stride) {
      LaneEntries entries = load_entries(&head(r)->groups[0], lane);
      const LaneEntries more = load_entries(&head(r)->groups[1], lane);
      if (args.dependent) ptx::grid_dependency_wait();
      const std::uint32_t has_more = __shfl_sync(0xFFFFFFFFu, entries.tail[0] >> 24, 0);
      ExceptionSums<C.token_tiles> sums;
#pragma unroll 1
      for (int g = 0; g < head_groups && !entries.empty_group(); ++g) {
        sums.add(entries, block, stand_in, lane);
        entries = more;
      }
      if (has_more != 0) sums.add_more(args.exceptions, head(r), block, stand_in, lane);
#pragma unroll
      for (int t = 0; t < C.token_tiles; ++t) {
        const std::uint32_t to =
            smem + args.layout.corrections + (r * C.token_tiles + t) * unit_bytes + lane * 16;
        ptx::store_shared_16(to, sums.stand_ins[t]);
        ptx::store_shared_16(to + plan::units(C) * unit_bytes, sums.true_weights[t]);
      }
    }
  }
};

/// Stores sums to `out`.
template <Encoding E>
struct StreamStore {
  const StreamArgs& args;
  const StreamShare& share;
  int lane;

  /// Two adjacent rows of one token.
  __device__ __forceinline__ void pair(int token, int row, float v0, float v1) const {
    const int column = (share.row_tile - args.first_row_tile) * format::tile_rows + row;
    const int left = args.rows - column;
    if (token >= share.tokens || left <= 0) return;
    const std::int64_t at = static_cast<std::int64_t>(share.token + token) * args.rows + column;
    if constexpr (E == Encoding::raw32) {
      auto* out = static_cast<float*>(args.out) + at;
      out[0] = v0;
      if (left > 1) out[1] = v1;
    } else {
      auto* out = static_cast<__nv_bfloat16*>(args.out) + at;
      if (left > 1 && (reinterpret_cast<std::uintptr_t>(out) & 3) == 0) {
        *reinterpret_cast<__nv_bfloat162*>(out) = __floats2bfloat162_rn(v0, v1);
      } else {
        out[0] = __float2bfloat16_rn(v0);
        if (left > 1) out[1] = __float2bfloat16_rn(v1);
      }
    }
  }

  /// A row tile and a token tile. Lanes g and g ^ 1 (of the same tokens) swap values, so that each
  /// has two adjacent rows: the even one of token 2t, the odd one of token 2t + 1.
  __device__ __forceinline__ void unit(int row_tile, int token_tile, float4 v) const {
    const bool odd = lane / 4 % 2 != 0;
    const float low = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.x : v.y, 4);
    const float high = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.z : v.w, 4);
    const int token = token_tile * 8 + lane % 4 * 2 + odd;
    const int row = row_tile * format::tile_rows + lane / 4 - odd;
    pair(token, row, odd ? low : v.x, odd ? v.y : low);
    pair(token, row + 8, odd ? high : v.z, odd ? v.w : high);
  }
};

/// (sum - stand_ins) + true_weights
__device__ __forceinline__ float4 corrected(float4 sum, float4 stand_ins, float4 true_weights) {
  return make_float4((sum.x - stand_ins.x) + true_weights.x, (sum.y - stand_ins.y) + true_weights.y,
                     (sum.z - stand_ins.z) + true_weights.z,
                     (sum.w - stand_ins.w) + true_weights.w);
}

/// From the sums of the consumer warps to `out`.
template <plan::StreamConfig C>
struct StreamEpilogue {
  static constexpr int units = plan::units(C);

  const StreamArgs& args;
  const StreamShare& share;
  std::uint32_t smem;
  int warp;
  int lane;

  __device__ __forceinline__ std::uint32_t unit_address(int part, int index) const {
    return smem + part + index * unit_bytes + lane * 16;
  }

  __device__ __forceinline__ void store_partials(
      const float (&sums)[C.row_tiles][C.token_tiles][4]) const {
#pragma unroll
    for (int r = 0; r < C.row_tiles; ++r) {
#pragma unroll
      for (int t = 0; t < C.token_tiles; ++t) {
        ptx::store_shared_16(
            unit_address(args.layout.partials, (warp * C.row_tiles + r) * C.token_tiles + t),
            sums[r][t]);
      }
    }
  }

  /// Sum of unit `unit` over the warps that shared k, in fixed order.
  __device__ __forceinline__ float4 sum_partials(int unit) const {
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int w = 0; w < C.k_warps; ++w) {
      sum += ptx::load_shared_float4(unit_address(args.layout.partials, w * units + unit));
    }
    return sum;
  }

  /// The two sums of exceptions lie at `index` of `part`, and `apart` units on.
  __device__ __forceinline__ float4 corrected_by(float4 sum, int part, int index, int apart) const {
    return corrected(sum, ptx::load_shared_float4(unit_address(part, index)),
                     ptx::load_shared_float4(unit_address(part, index + apart)));
  }

  __device__ __forceinline__ void reduce_and_store() const {
    const StreamStore<C.encoding> store{args, share, lane};
    for (int unit = warp; unit < units; unit += plan::cta_threads(C) / 32) {
      if (unit % C.token_tiles * 8 >= share.tokens) continue;
      float4 sum = sum_partials(unit);
      if constexpr (plan::has_exceptions(C)) {
        sum = corrected_by(sum, args.layout.corrections, unit, units);
      }
      store.unit(unit / C.token_tiles, unit % C.token_tiles, sum);
    }
  }

  /// Rank `unit / owned_units` of the cluster owns a unit. Exchange memory of an owner: units
  /// [source][owned unit]; the sources are the ranks, then stand_ins and true_weights.
  __device__ __forceinline__ void exchange_and_store() const {
    constexpr int owned = plan::owned_units(C);
    const std::uint32_t barrier = smem + args.layout.barrier;
    for (int unit = warp; unit < units; unit += plan::cta_threads(C) / 32) {
      const int owner = unit / owned;
      const std::uint32_t to =
          ptx::map_to_rank(unit_address(args.layout.exchange, unit - owner * owned), owner);
      const std::uint32_t to_barrier = ptx::map_to_rank(barrier, owner);
      const auto send = [&](int source, float4 v) {
        ptx::store_async_16(to + source * owned * unit_bytes, v, to_barrier);
      };
      send(share.rank, sum_partials(unit));
      if (plan::has_exceptions(C) && unit / C.token_tiles % C.cluster == share.rank) {
        send(C.cluster, ptx::load_shared_float4(unit_address(args.layout.corrections, unit)));
        send(C.cluster + 1,
             ptx::load_shared_float4(unit_address(args.layout.corrections, units + unit)));
      }
    }
    const int first = share.rank * owned;
    if (first >= units) return;
    const StreamStore<C.encoding> store{args, share, lane};
    ptx::mbarrier_wait_cluster(barrier, 0);
    for (int i = warp; i < min(owned, units - first); i += plan::cta_threads(C) / 32) {
      float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
      for (int s = 0; s < C.cluster; ++s) {
        sum += ptx::load_shared_float4(unit_address(args.layout.exchange, s * owned + i));
      }
      if constexpr (plan::has_exceptions(C)) {
        sum = corrected_by(sum, args.layout.exchange, C.cluster * owned + i, owned);
      }
      store.unit((first + i) / C.token_tiles, (first + i) % C.token_tiles, sum);
    }
  }

  /// Before anything else: the barrier that counts what the cluster sends.
  __device__ __forceinline__ void expect_exchange() const {
    constexpr int owned = plan::owned_units(C);
    if (threadIdx.x == 0) {
      const int mine = min(owned, units - share.rank * owned);
      ptx::mbarrier_init(smem + args.layout.barrier, 1);
      ptx::fence_mbarrier_init();
      if (mine > 0) {
        ptx::mbarrier_arrive_expect(smem + args.layout.barrier,
                                    mine * plan::exchange_sources(C) * unit_bytes);
      }
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
};

/// Index: entry of plan::stream_table. (nvcc 13.0 can't name a kernel by a struct of a namespace.)
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::stream_table[Index]),
                                  plan::stream_table[Index].min_ctas)
    stream_kernel(const __grid_constant__ StreamArgs args) {
  constexpr plan::StreamConfig C = plan::stream_table[Index];
  extern __shared__ __align__(1024) unsigned char shared[];
  const std::uint32_t smem = ptx::shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const StreamShare share = stream_share<C>(args);
  const StreamEpilogue<C> epilogue{args, share, smem, warp, lane};
  if constexpr (C.cluster > 1) epilogue.expect_exchange();
  if (args.dependent) ptx::launch_dependents();

  if (warp < C.k_warps) [[likely]] {
    StreamConsumer<C> consumer(args, share, smem, warp, lane);
    consumer.run();
    if (args.layout.partials == 0) __syncthreads();  // the rings' memory is free
    epilogue.store_partials(consumer.sums);
  } else if constexpr (plan::has_exceptions(C)) {
    const int first = share.rank + C.cluster * (warp - C.k_warps);
    StreamExceptions<C>{args, share, smem, first, lane}.run();
    if (args.layout.partials == 0) __syncthreads();
  }
  __syncthreads();
  if constexpr (C.cluster == 1) {
    epilogue.reduce_and_store();
  } else {
    ptx::cluster_wait();  // the others' barriers are there
    epilogue.exchange_and_store();
  }
}

}  // namespace slimgemm::cuda
