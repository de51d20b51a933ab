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

/// Shared memory of a warp's ExceptionHead; in a persistent kernel that of two, of this tile and
/// the next.
template <plan::TileConfig C>
__device__ __forceinline__ std::uint32_t heads_of(std::uint32_t smem, unsigned warp) {
  return smem + plan::tile_layout(C).heads +
         warp * (plan::is_persistent(C) ? 2 : 1) * plan::exception_head_bytes;
}

/// The exceptions of a warp's row tile, in order of k: a window of 32 entries in shared memory, of
/// which the next two are in registers.
template <plan::TileConfig C>
struct TileExceptions {
  static constexpr unsigned all = 0xFFFFFFFFu;
  static constexpr int window = head_groups * format::group_entries;
  static constexpr int none = INT_MAX;
  static_assert(window == 32, "an entry a lane");

  const ExceptionView& view;
  const TileShare& share;
  const int lane;
  const std::uint32_t heads;     // shared memory
  const std::uint32_t stand_in;  // as BF16
  std::uint32_t entries;         // of heads: the row tile's ExceptionHead, then the window

  std::uint32_t more_begin = 0;  // groups of the list after the window
  std::uint32_t more_end = 0;
  uint2 later;                   // this lane's entry of the window after this one
  int position = 0;              // in the window, of the entry after `second`
  int first_k_tile = none;       // of the next entry, counted in the CTA
  int second_k_tile = none;      // of the one after it
  std::uint32_t first_code = 0;  // see encode()
  std::uint32_t second_code = 0;

  __device__ __forceinline__ TileExceptions(const ExceptionView& view, const TileShare& share,
                                            std::uint32_t heads, std::uint32_t stand_in, int lane)
      : view(view), share(share), lane(lane), heads(heads), stand_in(stand_in), entries(heads) {}

  /// Asks for the head of a warp's row tile, in the cp.async group that it commits next.
  __device__ __forceinline__ static void ask(const ExceptionView& view,
                                             const unsigned char* row_tile, std::uint32_t head,
                                             unsigned lane) {
    const std::uint32_t offset = lane * 16;
    if (offset < plan::exception_head_bytes) {
      ptx::cp_async_16(head + offset, row_tile + view.head_offset + offset);
    }
  }
  /// The same for the next tile of a persistent kernel.
  __device__ __forceinline__ void ask_next(const unsigned char* row_tile) const {
    ask(view, row_tile, next_entries(), static_cast<unsigned>(lane));
  }
  __device__ __forceinline__ std::uint32_t next_entries() const {
    return 2 * heads + plan::exception_head_bytes - entries;
  }
  /// After the last patch() of a tile: to those of the next.
  __device__ __forceinline__ void start_next() {
    entries = next_entries();
    __syncwarp();  // the other lanes' bytes are there, too
    start();
  }

  /// Entry i of the groups after the window.
  __device__ __forceinline__ uint2 load(int i) const {
    const std::uint32_t group = more_begin + static_cast<std::uint32_t>(i) / format::group_entries;
    if (group >= more_end) return make_uint2(0, std::uint32_t{format::unused_row} << 16);
    return __ldg(reinterpret_cast<const uint2*>(view.more + group) + i % format::group_entries);
  }

  /// This lane's entry of the next 32.
  __device__ __forceinline__ uint2 take_later() {
    const uint2 entry = load(lane);
    more_begin += head_groups;
    return entry;
  }

  /// An entry's k tile, counted in the CTA; those of other CTAs lie outside its range, and after it
  /// the end of the list.
  __device__ __forceinline__ int k_tile_of(uint2 entry) const {
    const bool used = (entry.y >> 16 & 0xFF) != format::unused_row;
    return used ? static_cast<int>(entry.x / format::tile_k) - share.k_tile_begin : none;
  }

  /// What patch_one needs: bits ^ stand-in | lane << 16 | fragment register << 21 | half << 25.
  __device__ __forceinline__ std::uint32_t encode(uint2 entry) const {
    const auto slot = format::fragment_slot(static_cast<int>(entry.y >> 16 & 0xF),
                                            static_cast<int>(entry.x % format::tile_k));
    const auto target = static_cast<std::uint32_t>(4 * slot.fragment + slot.index / 2);
    return ((entry.y & 0xFFFF) ^ stand_in) | static_cast<std::uint32_t>(slot.lane) << 16 |
           target << 21 | static_cast<std::uint32_t>(slot.index % 2) << 25;
  }

  /// After the head has arrived, in all lanes.
  __device__ __forceinline__ void start() {
    const uint2 range = ptx::load_shared_8(entries + window * 8);
    more_begin = range.x;
    more_end = range.y;
    uint2 entry = ptx::load_shared_8(entries + lane * 8);
    if (share.rank > 0 && __shfl_sync(all, k_tile_of(entry), window - 1) < 0) {
      skip_others();
      entry = take_later();
    }
    later = take_later();
    open(entry);
    if (share.rank > 0) position = __popc(__ballot_sync(all, k_tile_of(entry) < 0));
    advance();
    advance();
  }

  /// Moves past groups of lower ranks, where those are more than the head: 32 probes at a time,
  /// until one group's worth of entries is left. With the rounding to a whole group this rank's
  /// first entry then is at most the 32nd, in the window.
  __device__ __forceinline__ void skip_others() {
    int begin = 0;
    int end = static_cast<int>(more_end - more_begin) * format::group_entries;
    while (end - begin > format::group_entries) {
      const int step = (end - begin + window - 1) / window;
      const int i = begin + lane * step;
      const int before = __popc(__ballot_sync(all, i < end && k_tile_of(load(i)) < 0));
      if (before == 0) break;
      end = min(end, begin + before * step);
      begin += (before - 1) * step;
    }
    more_begin += static_cast<std::uint32_t>(begin) / format::group_entries;
  }

  /// Makes 32 entries the window.
  __device__ __forceinline__ void open(uint2 entry) {
    __syncwarp();
    ptx::store_shared_8(entries + lane * 8,
                        make_uint2(static_cast<std::uint32_t>(k_tile_of(entry)), encode(entry)));
    __syncwarp();
    position = 0;
  }

  __device__ __forceinline__ void advance() {
    first_k_tile = second_k_tile;
    first_code = second_code;
    if (position == window) {
      open(later);
      later = take_later();
    }
    const uint2 entry = ptx::load_shared_8(entries + position * 8);
    // The same in all lanes; the shuffle lets the compiler know.
    second_k_tile = __shfl_sync(all, static_cast<int>(entry.x), 0);
    second_code = entry.y;
    ++position;
  }

  /// Overwrites the stand-ins of a k tile in its fragments. Calls go up in k.
  __device__ __forceinline__ void patch(std::uint32_t (&fragments)[16], int now) {
    while (first_k_tile <= now) {
      if (C.k_groups == 1 || first_k_tile == now) patch_one(fragments, first_code);
      advance();
    }
  }

  /// Turns a stand-in into the true weight: one of 16 registers of one lane, by four choices of the
  /// k16 block and four in it.
  __device__ __forceinline__ void patch_one(std::uint32_t (&fragments)[16],
                                            std::uint32_t code) const {
    const std::uint32_t difference = (code >> 25) != 0 ? code << 16 : code & 0xFFFF;
    const std::uint32_t mine = lane == static_cast<int>(code >> 16 & 31) ? difference : 0u;
    std::uint32_t in_block[4];
    std::uint32_t in_register[4];
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      in_block[i] = (code >> 23 & 3) == i ? ~0u : 0u;
      in_register[i] = (code >> 21 & 3) == i ? mine : 0u;
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) fragments[i] ^= in_block[i / 4] & in_register[i % 4];
  }
};

/// For encodings without exceptions.
struct NoTileExceptions {
  template <class... Args>
  __device__ __forceinline__ explicit NoTileExceptions(Args&&...) {}
  __device__ __forceinline__ static void ask(const ExceptionView&, const unsigned char*,
                                             std::uint32_t, unsigned) {}
  __device__ __forceinline__ void ask_next(const unsigned char*) const {}
  __device__ __forceinline__ void start_next() {}
  __device__ __forceinline__ void start() {}
  __device__ __forceinline__ void patch(std::uint32_t (&)[16], int) {}
};

}  // namespace slimgemm::cuda
