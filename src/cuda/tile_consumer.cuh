// SPDX-License-Identifier: Apache-2.0
// The main loop of the tile kernel (tile_kernel.cuh shows the whole): a warpgroup turns its k tiles
// of weights into A fragments and multiplies them with x from shared memory.
#pragma once

#include "cuda/ptx/barrier.cuh"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/tile_exceptions.cuh"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/weights.cuh"
#include "plan/kernel_table.hpp"

#include <cstdint>

namespace slimgemm::cuda {

template <plan::TileConfig C>
struct TileBarriers {
  std::uint64_t x_full[C.x_stages];
  std::uint64_t x_empty[C.x_stages];
  std::uint64_t received[plan::warpgroups(C)][plan::epilogue_steps(C)];
};

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

/// Which share of the k tiles a warpgroup takes.
template <plan::TileConfig C>
__device__ __forceinline__ int k_group_of(int warp) {
  return C.k_groups == 1 ? 0 : warp / 4 / C.row_blocks;
}

/// And which of the CTA's row tiles a warp takes.
template <plan::TileConfig C>
__device__ __forceinline__ int row_tile_of(int warp) {
  return C.k_groups == 1 ? warp : warp % (4 * C.row_blocks);
}

template <plan::TileConfig C>
__device__ __forceinline__ int k_tiles_of(const TileShare& share, int k_group) {
  return (share.k_tiles - k_group + C.k_groups - 1) / C.k_groups;
}

/// The packed bytes of a warp's row tile. Those past the end repeat the last one; what they give is
/// not stored.
template <plan::TileConfig C>
__device__ __forceinline__ const unsigned char* packed_row_tile(const TileArgs& args,
                                                                const TileShare& share, int warp) {
  const int row = min(share.row_tile + row_tile_of<C>(warp), share.last_row_tile);
  return args.tiles + static_cast<unsigned>(row) * args.row_tile_bytes;
}

/// Copies of weights into a warp's own ring: of each k tile, a lane copies the bytes that it
/// decodes itself. They are what a CTA starts with, so their addresses come from the number of the
/// thread: from what is the same in a warp, which the compiler knows after a shuffle only, they
/// came later and made kernels 0.1 to 0.3 us slower.
template <plan::TileConfig C>
struct TileWeightCopy {
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);
  static constexpr int first_stages = plan::first_w_stages(C);

  const unsigned char* row_tile;  // the packed bytes of the warp's row tile
  const unsigned char* tile;      // this lane's bytes of the next k tile to copy
  const unsigned thread;          // in the CTA
  const std::uint32_t ring;       // this lane's bytes of stage 0

  __device__ __forceinline__ TileWeightCopy(const TileArgs& args, const TileShare& share,
                                            std::uint32_t smem, unsigned thread)
      : row_tile(packed_row_tile<C>(args, share, static_cast<int>(thread / 32))),
        tile(row_tile + (static_cast<std::uint64_t>(share.k_tile_begin +
                                                    k_group_of<C>(static_cast<int>(thread / 32))) *
                             tile_bytes +
                         thread % 32 * 16)),
        thread(thread),
        ring(smem + plan::tile_layout(C).w + thread / 32 * (C.w_stages * tile_bytes) +
             thread % 32 * 16) {}

  /// The next k tile, if it exists. A group of cp.async either way.
  __device__ __forceinline__ void copy(int stage, bool exists) {
    if (exists) {
#pragma unroll
      for (int p = 0; p < LaneTile<C.encoding>::planes; ++p) {
        ptx::cp_async_16(ring + stage * tile_bytes + p * format::plane_bytes,
                         tile + p * format::plane_bytes);
      }
    }
    ptx::cp_async_commit();
    tile += C.k_groups * tile_bytes;
  }
  /// Stages first .. end - 1; k tiles exist for the first `count` of them (none if it is negative).
  __device__ __forceinline__ void fill(int first, int end, int count) {
#pragma unroll 1
    for (int s = first; s < end; ++s) copy(s, s - first < count);
  }
  /// Asks for the head of the exceptions, then for the first k tiles.
  template <class Exceptions>
  __device__ __forceinline__ void start(const TileArgs& args, const TileShare& share,
                                        std::uint32_t smem) {
    Exceptions::ask(args.exceptions, row_tile, heads_of<C>(smem, thread / 32), thread % 32);
    fill(0, first_stages, k_tiles_of<C>(share, k_group_of<C>(static_cast<int>(thread / 32))));
  }
};

/// One consumer warpgroup's main loop. Of a persistent kernel the rings go on from tile to tile:
/// the next one's first weights are asked for before this one's last are multiplied.
template <plan::TileConfig C>
struct TileConsumer {
  static constexpr int tile_bytes = plan::tile_bytes(C.encoding);
  /// The next k tile is loaded before this one is multiplied. Not where the loaded registers are
  /// the fragments: wgmma in flight reads those.
  static constexpr bool loads_early = C.encoding == Encoding::split12;

  const TileArgs& args;
  TileBarriers<C>& barriers;
  const std::uint32_t smem;
  const int lane;
  const int k_group;
  TileWeightCopy<C> weights;
  const int steps;  // k tiles of this warpgroup
  int to_copy;      // of them
  int w_stage = 0;
  const unsigned char* next_row_tile = nullptr;  // of a persistent kernel, null after the last
  std::uint32_t x_ring;
  RingPosition<C.x_stages> x_at;
  LaneTile<C.encoding> packed;  // of the next k tile to decode

  __device__ __forceinline__ TileConsumer(const TileArgs& args, const TileShare& share,
                                          TileBarriers<C>& barriers, std::uint32_t smem, int warp,
                                          int lane, const TileWeightCopy<C>& weights)
      : args(args),
        barriers(barriers),
        smem(smem),
        lane(lane),
        k_group(k_group_of<C>(warp)),
        weights(weights),
        steps(k_tiles_of<C>(share, k_group)),
        to_copy(steps - TileWeightCopy<C>::first_stages),
        x_ring(smem),
        x_at{k_group} {}

  /// Waits for the first k tile, then asks for those that start() left.
  __device__ __forceinline__ void wait_for_first() {
    constexpr int first = TileWeightCopy<C>::first_stages;
    ptx::cp_async_wait<first - 1>();
    weights.fill(first, C.w_stages, to_copy);
    to_copy -= C.w_stages - first;
  }
  __device__ __forceinline__ void wait_for_next() const { ptx::cp_async_wait<C.w_stages - 1>(); }

  __device__ __forceinline__ void load() { packed.load(weights.ring + w_stage * tile_bytes); }
  __device__ __forceinline__ void load_next() {
    wait_for_next();
    load();
  }
  /// The stage that was decoded last.
  template <class Exceptions>
  __device__ __forceinline__ void refill(Exceptions& exceptions) {
    weights.copy(w_stage, to_copy > 0);
    --to_copy;
    if (++w_stage == C.w_stages) w_stage = 0;
    if constexpr (plan::is_persistent(C)) {
      if (to_copy == 0) go_on(exceptions);
    }
  }
  /// From here on the weights of the next tile. The head of its exceptions comes with its first k
  /// tile, in the group that the next copy() commits.
  template <class Exceptions>
  __device__ __forceinline__ void go_on(Exceptions& exceptions) {
    if (next_row_tile == nullptr) return;
    exceptions.ask_next(next_row_tile);
    weights.tile = next_row_tile + lane * 16;
    to_copy = steps;
  }

  /// Decodes a k tile, whose bytes are there.
  __device__ __forceinline__ void decode(std::uint32_t (&fragments)[16]) {
    if constexpr (!loads_early) load();
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      std::uint32_t a[4];
      packed.fragment(f, args.decode.window, a);
#pragma unroll
      for (int i = 0; i < 4; ++i) fragments[4 * f + i] = a[i];
    }
    ptx::pin_registers(fragments);
  }

  __device__ __forceinline__ std::uint32_t x_stage() const {
    return x_ring + x_at.slot * C.tokens * 128;
  }

  /// Starts the four wgmma of a k tile.
  __device__ __forceinline__ void multiply(float (&sums)[C.tokens / 2],
                                           std::uint32_t (&fragments)[16]) {
    ptx::mbarrier_wait(ptx::shared_address(&barriers.x_full[x_at.slot]), x_at.parity);
    const std::uint64_t x = ptx::wgmma_descriptor(x_stage());
    ptx::pin_registers(fragments);
    ptx::wgmma_fence();
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      ptx::Wgmma<C.tokens>::template mma<true>(sums, fragments + 4 * f, x + 2 * f);
    }
    ptx::wgmma_commit();
  }

  /// To every CTA that copies a part of x into the slot.
  __device__ __forceinline__ void release_x(int slot) {
    const std::uint32_t empty = ptx::shared_address(&barriers.x_empty[slot]);
    if constexpr (C.x_sharers == 1) {
      if (lane == 0) ptx::mbarrier_arrive(empty);
    } else {
      if (lane < C.x_sharers) ptx::mbarrier_arrive_remote(ptx::map_to_rank(empty, lane));
    }
  }

  /// Before the first tile. Exceptions: TileExceptions or NoTileExceptions.
  template <class Exceptions>
  __device__ __forceinline__ void begin(Exceptions& exceptions) {
    if (steps == 0) return;
    wait_for_first();
    if constexpr (loads_early) load();
    __syncwarp();  // the other lanes' bytes of the exceptions' head are there, too
    exceptions.start();
  }

  /// A tile. Calls meanwhile() while its last products are under way.
  template <class Exceptions, class F>
  __device__ __forceinline__ void run(float (&sums)[C.tokens / 2], Exceptions& exceptions,
                                      F&& meanwhile) {
    std::uint32_t fragments[2][16];
    if (steps > 0) {
      int k_tile = k_group;
      int left = steps;
      int previous = x_at.slot;
      // Decodes the next k tile while the tensor cores work on the one before; false after the
      // last.
      const auto step = [&](std::uint32_t(&next)[16]) {
        if constexpr (!loads_early) wait_for_next();
        decode(next);
        refill(exceptions);
        if constexpr (loads_early) load_next();
        exceptions.patch(next, k_tile);
        multiply(sums, next);
        ptx::wgmma_wait<1>();  // the group before: its fragments and its x are free
        if (left < steps) release_x(previous);
        if (--left == 0) return false;
        previous = x_at.slot;
        x_at.advance(C.k_groups);
        k_tile += C.k_groups;
        return true;
      };
      while (step(fragments[0]) && step(fragments[1])) {
      }
    }
    meanwhile();
    ptx::wgmma_wait<0>();
    ptx::pin_registers(sums);
    if constexpr (plan::is_persistent(C)) {
      release_x(x_at.slot);
      x_at.advance(1);
    }
  }
};

/// FP32 weights: three BF16 terms each. The tensor cores truncate when they add, so every k tile
/// starts at zero, small terms first, and its sum is added in plain FP32.
template <plan::TileConfig C>
struct TileTermsConsumer : TileConsumer<C> {
  using Base = TileConsumer<C>;
  using Tile = LaneTile<C.encoding>;
  using Base::Base;
  using Fragments = std::uint32_t[Tile::terms][16];

  float part[C.tokens / 2] = {};  // of the k tile that the tensor cores work on

  /// Splits the next k tile and has its stage refilled. Nonfinite: some weight is Inf or NaN.
  template <bool Nonfinite, class Exceptions>
  __device__ __forceinline__ void decode(Fragments& fragments, Exceptions& exceptions) {
    const std::uint32_t from = Base::weights.ring + Base::w_stage * Base::tile_bytes;
#pragma unroll
    for (int f = 0; f < 4; ++f) {
      std::uint32_t a[Tile::terms][4];
      Tile{}.template terms_of<Nonfinite>(from, f, a);
#pragma unroll
      for (int term = 0; term < Tile::terms; ++term) {
#pragma unroll
        for (int i = 0; i < 4; ++i) fragments[term][4 * f + i] = a[term][i];
      }
    }
#pragma unroll
    for (auto& term : fragments) ptx::pin_registers(term);
    Base::refill(exceptions);
  }

  /// Starts the twelve wgmma of a k tile.
  __device__ __forceinline__ void multiply(Fragments& fragments) {
    ptx::mbarrier_wait(ptx::shared_address(&Base::barriers.x_full[Base::x_at.slot]),
                       Base::x_at.parity);
    const std::uint64_t x = ptx::wgmma_descriptor(Base::x_stage());
#pragma unroll
    for (auto& term : fragments) ptx::pin_registers(term);
    ptx::pin_registers(part);
    ptx::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4 * Tile::terms; ++i) {
      const std::uint32_t* const a = &fragments[Tile::terms - 1 - i / 4][i % 4 * 4];
      if (i == 0) {
        ptx::Wgmma<C.tokens>::template mma<false>(part, a, x);
      } else {
        ptx::Wgmma<C.tokens>::template mma<true>(part, a, x + 2 * (i % 4));
      }
    }
    ptx::wgmma_commit();
  }

  template <bool Nonfinite, class Exceptions>
  __device__ __forceinline__ void run_as(float (&sums)[C.tokens / 2], Exceptions& exceptions) {
    Fragments fragments;
#pragma unroll 1
    for (int left = Base::steps; left > 0; --left) {
      Base::wait_for_next();
      decode<Nonfinite>(fragments, exceptions);
      multiply(fragments);
      ptx::wgmma_wait<0>();
      ptx::pin_registers(part);
#pragma unroll
      for (int i = 0; i < C.tokens / 2; ++i) sums[i] += part[i];
      Base::release_x(Base::x_at.slot);
      Base::x_at.advance(C.k_groups);
    }
  }

  template <class Exceptions>
  __device__ __forceinline__ void begin(Exceptions&) {
    Base::wait_for_first();
  }

  template <class Exceptions, class F>
  __device__ __forceinline__ void run(float (&sums)[C.tokens / 2], Exceptions& exceptions, F&&) {
    if (Base::args.decode.nonfinite) [[unlikely]] {
      run_as<true>(sums, exceptions);
    } else {
      run_as<false>(sums, exceptions);
    }
  }
};

}  // namespace slimgemm::cuda
