// SPDX-License-Identifier: Apache-2.0
// Exceptions in the tile kernel: a warp goes through the list of its row tile in order of k and
// overwrites the stand-ins in its decoded fragments with the true weights, so that the tensor cores
// never see a stand-in.
//
// Two things keep this cheap. The list's head lies behind the row tile's weights and is asked for
// before them; behind them in time it would arrive microseconds later. And all control flow is the
// same for all lanes, in a way that the compiler can see (what comes from shuffles and votes): lane
// by lane branches would take the main loop's ring positions out of uniform registers.
#pragma once

#include "cuda/ptx/memory.cuh"
#include "cuda/tile_kernel_args.hpp"

#include <climits>
#include <cstdint>

namespace slimgemm::cuda {

static_assert(sizeof(ExceptionHead) == plan::exception_head_bytes);

/// The k tiles and rows of a CTA.
struct TileShare {
  int k_tile_begin;
  int k_tiles;
  int row_tile;        // first, in the matrix
  int last_row_tile;   // of the call, in the matrix
  std::int64_t token;  // first
  std::uint32_t rank;
};

/// The exceptions of a warp: those of its row tile that lie in its warpgroup's k tiles.
template <plan::TileConfig C>
struct TileExceptions {
  static constexpr unsigned all = 0xFFFFFFFFu;
  static constexpr int chunk_entries = 32;  // one a lane
  static constexpr int none = INT_MAX;

  const ExceptionView& view;
  const TileShare& share;
  const int lane;
  const int k_group;
  const std::uint32_t head;  // shared memory for the row tile's ExceptionHead

  std::uint32_t more_begin = 0;  // groups of the list after the head's
  std::uint32_t more_end = 0;
  int position = 0;        // in the list, of the chunk at hand
  int k_tile = 0;          // of this lane's entry, counted in the CTA
  std::uint32_t code = 0;  // of this lane's entry, see encode()
  uint2 next_chunk;        // this lane's entry of the next 32
  unsigned pending = 0;    // lanes whose entries are this warp's and still to come
  bool more = false;       // later chunks may have such entries
  int next_k_tile = none;  // of the first pending entry
  std::uint32_t next_code = 0;

  __device__ __forceinline__ TileExceptions(const ExceptionView& view, const TileShare& share,
                                            int k_group, std::uint32_t head, int lane)
      : view(view), share(share), lane(lane), k_group(k_group), head(head) {}

  /// Asks for the head, in the cp.async group that the warp commits next.
  __device__ __forceinline__ void ask(const unsigned char* row_tile) const {
    if (lane * 16 < plan::exception_head_bytes) {
      ptx::cp_async_16(head + lane * 16, row_tile + view.head_offset + lane * 16);
    }
  }

  /// Entry i of the list, from the head's end on.
  __device__ __forceinline__ uint2 load(int i) const {
    const std::uint32_t group =
        more_begin + static_cast<std::uint32_t>(i / format::group_entries - head_groups);
    if (group >= more_end) return make_uint2(0, std::uint32_t{format::unused_row} << 16);
    return __ldg(reinterpret_cast<const uint2*>(view.more + group) + i % format::group_entries);
  }

  /// An entry's k tile, counted in the CTA; those of other CTAs lie outside its range, and after it
  /// the end of the list.
  __device__ __forceinline__ int k_tile_of(uint2 entry) const {
    const bool used = (entry.y >> 16 & 0xFF) != format::unused_row;
    return used ? static_cast<int>(entry.x / format::tile_k) - share.k_tile_begin : none;
  }

  /// All that patch_one needs to know: bits | lane << 16 | fragment register << 21 | half << 25.
  __device__ __forceinline__ static std::uint32_t encode(uint2 entry) {
    const auto slot = format::fragment_slot(static_cast<int>(entry.y >> 16 & 0xF),
                                            static_cast<int>(entry.x % format::tile_k));
    const auto target = static_cast<std::uint32_t>(4 * slot.fragment + slot.index / 2);
    return (entry.y & 0xFFFF) | static_cast<std::uint32_t>(slot.lane) << 16 | target << 21 |
           static_cast<std::uint32_t>(slot.index % 2) << 25;
  }

  /// After the head has arrived, in all lanes.
  __device__ __forceinline__ void start() {
    const uint2 first = ptx::load_shared_8(head + lane * 8);
    const uint2 range = ptx::load_shared_8(head + chunk_entries * 8);
    more_begin = range.x;
    more_end = range.y;
    next_chunk = load(chunk_entries + lane);
    look(first);
    if (share.rank > 0) skip_others();
    find_next();
  }

  /// Moves past the entries of lower ranks where they are more than the head.
  __device__ __forceinline__ void skip_others() {
    if (__shfl_sync(all, k_tile, 31) >= 0) return;
    int begin = chunk_entries;
    int end = chunk_entries + static_cast<int>(more_end - more_begin) * format::group_entries;
    while (end - begin > chunk_entries) {
      const int step = (end - begin + 31) / 32;
      const int i = begin + lane * step;
      const int before = __popc(__ballot_sync(all, i < end && k_tile_of(load(i)) < 0));
      if (before == 0) break;
      end = min(end, begin + before * step);
      begin += (before - 1) * step;
    }
    position = begin;
    next_chunk = load(position + chunk_entries + lane);
    look(load(position + lane));
  }

  /// A new chunk.
  __device__ __forceinline__ void look(uint2 entry) {
    k_tile = k_tile_of(entry);
    code = encode(entry);
    const bool inside = k_tile >= 0 && k_tile < share.k_tiles;
    pending = __ballot_sync(all, inside && (C.k_groups == 1 || k_tile % C.k_groups == k_group));
    more = __ballot_sync(all, k_tile >= share.k_tiles) == 0;
  }

  __device__ __forceinline__ void find_next() {
    while (pending == 0 && more) {
      const uint2 entry = next_chunk;
      position += chunk_entries;
      next_chunk = load(position + chunk_entries + lane);
      look(entry);
    }
    const int first = __ffs(pending) - 1;
    next_k_tile = __shfl_sync(all, k_tile, first);
    next_code = __shfl_sync(all, code, first);
    if (pending == 0) next_k_tile = none;
  }

  /// Overwrites the stand-ins of a k tile in its fragments. Calls go up in k; advance() follows.
  __device__ __forceinline__ void patch(std::uint32_t (&fragments)[16], int now) {
    if (next_k_tile != now) return;
    patch_one(fragments, next_code);
    pending &= pending - 1;
    // Rarely another one in the same k tile.
    while (
        __any_sync(all, (k_tile == now && (pending >> lane & 1) != 0) || (pending == 0 && more))) {
      find_next();
      if (next_k_tile != now) break;
      patch_one(fragments, next_code);
      pending &= pending - 1;
    }
    next_k_tile = now;
  }

  /// After a k tile: off the way from one multiplication to the next.
  __device__ __forceinline__ void advance(int now) {
    if (next_k_tile == now) find_next();
  }

  __device__ __forceinline__ void patch_one(std::uint32_t (&fragments)[16],
                                            std::uint32_t its_code) const {
    const std::uint32_t half = (its_code >> 25) != 0 ? 0xFFFF0000u : 0x0000FFFFu;
    const std::uint32_t mask = lane == static_cast<int>(its_code >> 16 & 31) ? half : 0u;
    const std::uint32_t value = __byte_perm(its_code, 0, 0x1010);
    const int target = static_cast<int>(its_code >> 21 & 15);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const std::uint32_t here = i == target ? mask : 0u;
      fragments[i] = (fragments[i] & ~here) | (value & here);
    }
  }
};

/// For encodings without exceptions.
struct NoTileExceptions {
  template <class... Args>
  __device__ __forceinline__ explicit NoTileExceptions(Args&&...) {}
  __device__ __forceinline__ void ask(const unsigned char*) const {}
  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ void patch(std::uint32_t (&)[16], int) {}
  __device__ __forceinline__ void advance(int) {}
};

}  // namespace slimgemm::cuda
