// SPDX-License-Identifier: Apache-2.0
// The stream kernel for short K: a warp computes whole row tiles.
//
//   HBM: packed tiles of 16 rows x 64 k                 x (m x K), all of it
//        |                                                |
//        | cp.async, 16 bytes a lane                      | cp.async by all warps, once
//        v                                                v
//   a warp's own ring of `stages` k tiles              shared memory of the CTA
//        |  ld.shared, decode in registers                |  ldmatrix
//        v                                                v
//   mma.sync m16n8k16 over all of K; at the end of a row tile its exceptions, on x gathered from
//   shared memory (the first 32; the others from global): out = (sum - stand_ins) + true_weights
//
// With K = 512 a warp of the stream kernel has one or two k tiles, and a CTA is over before its
// first bytes have paid off. Here nothing is summed over warps and nobody waits for anybody after
// the one barrier behind the copy of x; a warp's ring runs on from one row tile into its next.
#pragma once

#include "cuda/stream_kernel.cuh"

namespace slimgemm::cuda {

/// A warp, its row tiles and its ring.
template <plan::StreamConfig C>
struct RowsWarp {
  using Tile = LaneTile<C.encoding>;
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);

  const StreamArgs& args;
  const int lane;
  const int row_tile_step;   // from one of this warp's row tiles to its next
  const std::uint32_t ring;  // this lane's bytes of stage 0
  const std::uint32_t x;     // shared memory, [k tile][token]
  const int x_tile_bytes;
  // The next k tile to ask for.
  int row_tile;
  int k_tile = 0;
  int stage = 0;
  const unsigned char* from;  // this lane's bytes

  /// Asks for the first weights before anything else is computed.
  __device__ __forceinline__ RowsWarp(const StreamArgs& args, std::uint32_t smem, int warp,
                                      int lane)
      : args(args),
        lane(lane),
        row_tile_step(static_cast<int>(gridDim.x) * C.k_warps),
        ring(smem + warp * (C.stages * tile_bytes) + lane * 16),
        x(smem + plan::weight_ring_bytes(C)),
        x_tile_bytes(args.x_rows * x_line_bytes),
        row_tile(args.first_row_tile + static_cast<int>(gridDim.x) * warp +
                 static_cast<int>(blockIdx.x)) {
    point_at_row_tile();
    fetch();
  }

  __device__ __forceinline__ void point_at_row_tile() {
    from = args.tiles + row_tile * args.row_tile_bytes + lane * 16;
  }

  /// Asks for the next k tile of the warp's row tiles, if there is one.
  __device__ __forceinline__ void fetch() {
    if (row_tile > args.last_row_tile) return;
#pragma unroll
    for (int p = 0; p < Tile::planes; ++p) {
      ptx::cp_async_16(ring + stage * tile_bytes + p * format::plane_bytes,
                       from + p * format::plane_bytes);
    }
    from += tile_bytes;
    if (++stage == C.stages) stage = 0;
    if (++k_tile < args.k_tiles) return;
    k_tile = 0;
    row_tile += row_tile_step;
    point_at_row_tile();
  }

  /// This warp's part of x: pieces of 16 bytes, those beyond K zero.
  __device__ __forceinline__ void copy_x(int warp) const {
    const int pieces = args.k_tiles * 8;  // of a token
#pragma unroll 1
    for (int i = warp * 32 + lane; i < pieces * args.x_rows; i += C.k_warps * 32) {
      const int token = i / pieces;
      const int piece = i % pieces;
      const auto* const source = reinterpret_cast<const unsigned char*>(args.x) +
                                 static_cast<std::uint64_t>(token) * args.x_stride_bytes;
      const int bytes = min(max((args.k - piece * 8) * 2, 0), 16);
      ptx::cp_async_16(x + piece / 8 * x_tile_bytes + x_piece(token, piece % 8),
                       source + (bytes > 0 ? piece * 16 : 0), bytes);
    }
  }

  /// Fills the ring, copies x, and waits for all of x; a cp.async group a stage.
  __device__ __forceinline__ void start(int warp) {
    if (args.dependent) [[unlikely]] {
      // The weights need not wait for the grid that writes x.
#pragma unroll 1
      for (int s = 1; s < C.stages; ++s) fetch();
      ptx::grid_dependency_wait();
      copy_x(warp);
      ptx::cp_async_commit();
#pragma unroll 1
      for (int s = 1; s < C.stages; ++s) ptx::cp_async_commit();
    } else {
      copy_x(warp);
      ptx::cp_async_commit();
#pragma unroll 1
      for (int s = 1; s < C.stages; ++s) {
        fetch();
        ptx::cp_async_commit();
      }
    }
    ptx::cp_async_wait<C.stages - 1>();
    __syncthreads();
  }

  /// Multiplies the k tile in `at` with that of x.
  __device__ __forceinline__ void multiply(float (&sums)[C.token_tiles][4], int at, int k,
                                           const std::uint32_t (&x_line)[C.token_tiles]) const {
    std::uint32_t b[C.token_tiles][8];
    load_x_tile(b, x + k * x_tile_bytes, x_line);
    Tile tile;
    tile.load(ring + at * tile_bytes);
    multiply_tile(sums, tile, args.decode.window, b);
  }

  /// A group of exceptions, on x from shared memory.
  __device__ __forceinline__ void add_exceptions(ExceptionSums<C.token_tiles>& sums,
                                                 const LaneEntries& entries) const {
    if (entries.empty_group()) return;
    GatheredX<C.token_tiles> gathered;
    gathered.load_shared(entries, args.m, lane, [&](int token, std::uint32_t k) {
      return x + k / format::tile_k * x_tile_bytes + x_piece(token, k % format::tile_k / 8) +
             k % 8 * 2;
    });
    sums.add(entries, gathered, stand_in_bits(args.decode.window), lane);
  }

  __device__ __forceinline__ void run() {
    std::uint32_t x_line[C.token_tiles];
    find_x_lines(x_line, args.m, lane);
    const int step = row_tile_step;
    int first = args.first_row_tile + static_cast<int>(blockIdx.x);
    first += static_cast<int>(threadIdx.x / 32) * static_cast<int>(gridDim.x);
    int at = 0;
#pragma unroll 1
    for (int now = first; now <= args.last_row_tile; now += step) {
      const auto* const head = reinterpret_cast<const ExceptionHead*>(
          args.tiles + now * args.row_tile_bytes + args.exceptions.head_offset);
      const LaneEntries entries = load_entries(&head->groups[0], lane);
      const LaneEntries more = load_entries(&head->groups[1], lane);
      float sums[C.token_tiles][4] = {};
#pragma unroll 1
      for (int k = 0; k < args.k_tiles; ++k) {
        ptx::cp_async_wait<C.stages - 1>();
        multiply(sums, at, k, x_line);
        fetch();
        ptx::cp_async_commit();
        if (++at == C.stages) at = 0;
      }
      finish(now, sums, head, entries, more);
    }
  }

  /// Corrects a row tile's sums and stores them.
  __device__ __forceinline__ void finish(int now, const float (&sums)[C.token_tiles][4],
                                         const ExceptionHead* head, const LaneEntries& entries,
                                         const LaneEntries& more) const {
    ExceptionSums<C.token_tiles> exceptions;
    add_exceptions(exceptions, entries);
    add_exceptions(exceptions, more);
    if (__shfl_sync(0xFFFFFFFFu, entries.tail[0] >> 24, 0) != 0) {
      const TokenBlock block{reinterpret_cast<const unsigned char*>(args.x), args.x_stride_bytes,
                             args.m};
      exceptions.add_more(args.exceptions, head, block, stand_in_bits(args.decode.window), lane);
    }
    const StreamShare share{0, 0, args.k_tiles, now, 0, args.m};
    const StreamStore<C.encoding> store{args, share, lane};
#pragma unroll
    for (int t = 0; t < C.token_tiles; ++t) {
      const auto vector = [](const float(&v)[4]) { return make_float4(v[0], v[1], v[2], v[3]); };
      store.unit(0, t,
                 corrected(vector(sums[t]), vector(exceptions.stand_ins[t]),
                           vector(exceptions.true_weights[t])));
    }
  }
};

/// Index: entry of plan::stream_table with by_rows.
template <std::size_t Index>
__global__ void __launch_bounds__(plan::cta_threads(plan::stream_table[Index]),
                                  plan::stream_table[Index].min_ctas)
    rows_kernel(const __grid_constant__ StreamArgs args) {
  constexpr plan::StreamConfig C = plan::stream_table[Index];
  extern __shared__ __align__(1024) unsigned char shared[];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (args.dependent) ptx::launch_dependents();
  RowsWarp<C> rows(args, ptx::shared_address(shared), warp, lane);
  rows.start(warp);
  rows.run();
}

}  // namespace slimgemm::cuda
