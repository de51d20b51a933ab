// SPDX-License-Identifier: Apache-2.0
// The closed list of GPU kernel instances. The plan chooses from it, src/cuda/instances compiles
// it. Pure host C++: no CUDA headers, so that planning is tested without a GPU.
#pragma once

#include <slimgemm/types.hpp>

#include "format/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace slimgemm::plan {

/// How a stream kernel reads x.
enum class XAccess {
  aligned,  ///< 16 bytes at a time: base and row stride are multiples of 16 bytes
  any,      ///< element by element
};

/// Shape of one stream kernel instance (src/cuda/stream_kernel.cuh), its only template parameter.
///
/// A CTA computes row_tiles * 16 output features for up to 8 * token_tiles tokens. Each of its
/// k_warps consumer warps takes every k_warps-th k tile; exception_warps more compute the
/// exceptions.
struct StreamConfig {
  Encoding encoding;
  int token_tiles;      ///< n8 tiles: 8 * token_tiles tokens a CTA
  int row_tiles;        ///< 16-row tiles; x fragments are reused over them
  int k_warps;          ///< warps that share the k tiles
  int stages;           ///< k tiles in flight a warp
  int cluster;          ///< CTAs that split k between them and meet in distributed shared memory
  int min_ctas;         ///< CTAs an SM is meant to hold
  int exception_warps;  ///< split12: at least one, none if by_rows
  XAccess x_access = XAccess::aligned;
  /// Each of the k_warps warps takes row tiles of its own, all of k (src/cuda/rows_kernel.cuh): for
  /// short K, as all of x must fit into shared memory.
  bool by_rows = false;

  friend constexpr bool operator==(const StreamConfig&, const StreamConfig&) = default;
};

using format::tile_bytes;

constexpr int cta_tokens(const StreamConfig& c) { return 8 * c.token_tiles; }
constexpr bool has_exceptions(const StreamConfig& c) { return c.encoding == Encoding::split12; }
constexpr int cta_threads(const StreamConfig& c) { return 32 * (c.k_warps + c.exception_warps); }

inline constexpr StreamConfig stream_table[] = {
    // encoding, token_tiles, row_tiles, k_warps, stages, cluster, min_ctas, exception_warps
    // Up to 8 tokens.
    {Encoding::split12, 1, 1, 16, 4, 1, 1, 1},
    {Encoding::split12, 1, 1, 8, 4, 1, 2, 1},
    {Encoding::split12, 1, 1, 8, 3, 1, 2, 1},
    {Encoding::split12, 1, 1, 8, 4, 2, 1, 1},
    {Encoding::split12, 1, 1, 8, 4, 4, 1, 1},
    {Encoding::split12, 1, 2, 8, 4, 1, 1, 1},
    {Encoding::split12, 1, 2, 8, 2, 1, 2, 2},
    {Encoding::split12, 1, 2, 4, 4, 1, 2, 1},
    {Encoding::split12, 1, 4, 4, 2, 1, 2, 1},
    {Encoding::split12, 1, 4, 8, 2, 1, 1, 1},
    {Encoding::split12, 1, 1, 8, 4, 1, 1, 1, XAccess::any},
    {Encoding::split12, 1, 1, 16, 8, 1, 1, 0, XAccess::aligned, true},
    {Encoding::raw16, 1, 1, 16, 3, 1, 1, 0},
    {Encoding::raw16, 1, 1, 8, 3, 1, 2, 0},
    {Encoding::raw16, 1, 2, 8, 3, 1, 1, 0},
    {Encoding::raw16, 1, 2, 4, 3, 1, 2, 0},
    {Encoding::raw16, 1, 1, 8, 3, 1, 1, 0, XAccess::any},
    {Encoding::raw32, 1, 1, 4, 4, 8, 1, 0},
    {Encoding::raw32, 1, 1, 4, 4, 1, 2, 0},
    {Encoding::raw32, 1, 1, 4, 4, 1, 1, 0, XAccess::any},
    // Up to 16.
    {Encoding::split12, 2, 1, 16, 2, 1, 1, 1},
    {Encoding::split12, 2, 1, 8, 2, 1, 2, 1},
    {Encoding::split12, 2, 1, 8, 3, 2, 1, 1},
    {Encoding::split12, 2, 2, 8, 4, 1, 1, 1},
    {Encoding::split12, 2, 2, 8, 3, 1, 1, 1},
    {Encoding::split12, 2, 2, 4, 4, 1, 2, 1},
    {Encoding::split12, 2, 2, 4, 2, 1, 3, 1},
    {Encoding::split12, 2, 4, 4, 4, 1, 1, 1},
    {Encoding::split12, 2, 1, 16, 6, 1, 1, 0, XAccess::aligned, true},
    {Encoding::raw16, 2, 1, 8, 3, 1, 1, 0},
    {Encoding::raw16, 2, 2, 8, 3, 1, 1, 0},
    {Encoding::raw16, 2, 2, 4, 3, 1, 2, 0},
    {Encoding::raw32, 2, 1, 4, 4, 8, 1, 0},
    {Encoding::raw32, 2, 1, 4, 4, 6, 1, 0},
    {Encoding::raw32, 2, 1, 4, 4, 1, 1, 0},
    // Up to 32, and any number in token blocks.
    {Encoding::split12, 4, 2, 8, 2, 1, 1, 1},
    {Encoding::split12, 4, 2, 8, 2, 2, 1, 1},
    {Encoding::split12, 4, 2, 4, 2, 1, 2, 1},
    {Encoding::split12, 4, 4, 4, 3, 1, 1, 1},
    {Encoding::split12, 4, 5, 4, 2, 4, 1, 1},
    {Encoding::split12, 4, 2, 4, 2, 1, 1, 1, XAccess::any},
    {Encoding::split12, 4, 1, 16, 4, 1, 1, 0, XAccess::aligned, true},
    {Encoding::raw16, 4, 2, 8, 2, 1, 1, 0},
    {Encoding::raw16, 4, 2, 4, 2, 1, 2, 0},
    {Encoding::raw16, 4, 4, 4, 3, 1, 1, 0},
    {Encoding::raw16, 4, 2, 4, 2, 1, 1, 0, XAccess::any},
    {Encoding::raw32, 4, 1, 4, 4, 6, 1, 0},
    {Encoding::raw32, 4, 1, 4, 4, 1, 1, 0},
    {Encoding::raw32, 4, 1, 4, 3, 2, 2, 0},
    {Encoding::raw32, 4, 1, 4, 2, 1, 1, 0, XAccess::any},
};
inline constexpr std::size_t stream_count = sizeof(stream_table) / sizeof(stream_table[0]);

inline constexpr int smem_limit_bytes = 227 * 1024;  // dynamic shared memory of a CTA on Hopper

/// Sums of a row tile and a token tile, as MMA fragments: FP32 [32 lanes][4].
constexpr int units(const StreamConfig& c) { return c.row_tiles * c.token_tiles; }
inline constexpr int stream_unit_bytes = 32 * 16;
/// Units whose sums one CTA of a cluster completes.
constexpr int owned_units(const StreamConfig& c) { return (units(c) + c.cluster - 1) / c.cluster; }
/// Who sends an owner its units: every CTA, and the two sums of exceptions.
constexpr int exchange_sources(const StreamConfig& c) {
  return c.cluster + (has_exceptions(c) ? 2 : 0);
}
constexpr int weight_ring_bytes(const StreamConfig& c) {
  return c.k_warps * c.stages * c.row_tiles * tile_bytes(c.encoding);
}

/// Where the parts of a stream kernel's dynamic shared memory lie, in bytes. The weight ring starts
/// at 0, the ring of x follows it.
struct StreamLayout {
  int corrections;  ///< units [2][...]: stand_ins, true_weights; split12 only
  int exchange;     ///< units [source][owned unit], what the CTAs of the cluster send
  int barrier;      ///< an mbarrier for the exchange
  int partials;     ///< units [k_warps][...]; 0 where they share the rings' memory
  int total;
};

/// x_rows: tokens of x kept a k tile, min(m, 8 * token_tiles).
constexpr StreamLayout stream_layout(const StreamConfig& c, int x_rows) {
  StreamLayout layout{};
  const int rings = weight_ring_bytes(c) + c.k_warps * c.stages * x_rows * format::tile_k * 2;
  const int partials = c.k_warps * units(c) * stream_unit_bytes;
  layout.corrections = rings < partials ? partials : rings;
  layout.exchange = layout.corrections + (has_exceptions(c) ? 2 * units(c) * stream_unit_bytes : 0);
  layout.barrier = layout.exchange +
                   (c.cluster > 1 ? exchange_sources(c) * owned_units(c) * stream_unit_bytes : 0);
  const int end = layout.barrier + 16;
  // Partial sums have memory of their own if that leaves room for min_ctas CTAs on an SM.
  const bool fits = c.min_ctas * (end + partials + 1024) <= smem_limit_bytes + 1024;
  layout.partials = fits ? end : 0;
  layout.total = fits ? end + partials : end;
  return layout;
}

/// Dynamic shared memory. A kernel by rows: rings of weights, then x, [k tile][token].
constexpr std::int64_t stream_smem_bytes(const StreamConfig& c, int x_rows, std::int64_t k_tiles) {
  return c.by_rows ? weight_ring_bytes(c) + k_tiles * x_rows * format::tile_k * 2
                   : stream_layout(c, x_rows).total;
}

constexpr bool is_valid(const StreamConfig& c) {
  return c.token_tiles >= 1 && c.row_tiles >= 1 && c.stages >= 1 && c.cluster >= 1 &&
         c.cluster <= 8 && (c.exception_warps > 0) == (has_exceptions(c) && !c.by_rows) &&
         cta_threads(c) <= 1024 && cta_threads(c) * c.min_ctas <= 2048 &&
         (!c.by_rows || (has_exceptions(c) && c.row_tiles == 1 && c.cluster == 1 &&
                         c.x_access == XAccess::aligned)) &&
         stream_smem_bytes(c, cta_tokens(c), 1) <= smem_limit_bytes;
}
constexpr bool all_valid() {
  for (const StreamConfig& c : stream_table) {
    if (!is_valid(c)) return false;
  }
  return true;
}
static_assert(all_valid(), "an instance of stream_table breaks a limit of the kernel");

/// Shape of one tile kernel instance (src/cuda/tile_kernel.cuh), its only template parameter.
///
/// A CTA computes row_blocks * 64 output features for `tokens` tokens. Each block of 64 features
/// has k_groups warpgroups that take the k tiles in turn; `cluster` CTAs split k between them (each
/// has a k tile: the plan takes no instance with more CTAs than k tiles). One more warp copies x,
/// or, with moves_registers() or is_persistent(), one of a whole warpgroup.
struct TileConfig {
  Encoding encoding;
  int tokens;      ///< wgmma's n: 32, 64, 96, 128 or 256
  int row_blocks;  ///< 64-row blocks a CTA; an x tile is reused over them
  int k_groups;    ///< warpgroups that share a row block and alternate k tiles
  int x_stages;    ///< k tiles of x in flight (a multiple of k_groups)
  int w_stages;    ///< k tiles of weights in flight a warpgroup
  int cluster;     ///< CTAs that split k
  /// Of a persistent kernel: CTAs with neighbouring rows and the same tokens, each of which reads
  /// its part of x for all of them.
  int x_sharers = 1;

  friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;
};

inline constexpr TileConfig tile_table[] = {
    // encoding, tokens, row_blocks, k_groups, x_stages, w_stages, cluster, x_sharers
    {Encoding::split12, 32, 1, 2, 12, 6, 1},  {Encoding::split12, 32, 1, 2, 12, 5, 2},
    {Encoding::split12, 32, 1, 2, 12, 6, 3},  {Encoding::split12, 32, 1, 2, 12, 5, 1},
    {Encoding::split12, 64, 1, 2, 10, 5, 1},  {Encoding::split12, 64, 1, 2, 10, 4, 2},
    {Encoding::split12, 64, 1, 2, 10, 5, 3},  {Encoding::split12, 64, 2, 1, 12, 5, 5},
    {Encoding::split12, 64, 3, 1, 10, 5, 3},  {Encoding::split12, 96, 1, 2, 8, 6, 1},
    {Encoding::split12, 96, 2, 1, 8, 6, 1},   {Encoding::split12, 96, 2, 1, 8, 6, 2},
    {Encoding::split12, 96, 3, 1, 8, 4, 1},   {Encoding::split12, 96, 3, 1, 7, 4, 2},
    {Encoding::split12, 128, 1, 2, 10, 3, 1}, {Encoding::split12, 128, 1, 2, 8, 3, 2},
    {Encoding::split12, 128, 1, 2, 8, 5, 2},  {Encoding::split12, 128, 1, 2, 8, 3, 3},
    {Encoding::split12, 128, 1, 2, 8, 3, 4},  {Encoding::split12, 128, 2, 1, 6, 5, 1},
    {Encoding::split12, 128, 2, 1, 8, 4, 2},  {Encoding::split12, 128, 2, 1, 7, 4, 3},
    {Encoding::split12, 128, 2, 1, 6, 4, 5},  {Encoding::split12, 128, 3, 1, 6, 4, 1},
    {Encoding::split12, 128, 3, 1, 5, 4, 2},  {Encoding::split12, 128, 3, 1, 5, 3, 4},
    {Encoding::split12, 256, 1, 1, 5, 6, 1},  {Encoding::split12, 256, 1, 1, 5, 3, 1, 2},
    {Encoding::split12, 256, 2, 1, 4, 2, 1},  {Encoding::split12, 256, 2, 1, 4, 2, 1, 2},
    {Encoding::raw16, 32, 1, 2, 12, 5, 1},    {Encoding::raw16, 64, 1, 2, 10, 4, 1},
    {Encoding::raw16, 64, 1, 2, 10, 4, 2},    {Encoding::raw16, 128, 1, 2, 8, 3, 1},
    {Encoding::raw16, 128, 2, 1, 6, 5, 1},    {Encoding::raw16, 128, 2, 1, 6, 4, 2},
    {Encoding::raw16, 256, 2, 1, 4, 2, 1},    {Encoding::raw32, 32, 1, 2, 10, 4, 8},
    {Encoding::raw32, 64, 1, 2, 8, 4, 6},     {Encoding::raw32, 64, 1, 2, 8, 4, 8},
};
inline constexpr std::size_t tile_count = sizeof(tile_table) / sizeof(tile_table[0]);

constexpr bool has_exceptions(const TileConfig& c) { return c.encoding == Encoding::split12; }
constexpr int warpgroups(const TileConfig& c) { return c.row_blocks * c.k_groups; }
/// Two warpgroups of 256 tokens, or three, need more registers than a CTA's threads get in equal
/// parts: those that copy give up most of theirs, a whole warpgroup.
constexpr bool moves_registers(const TileConfig& c) {
  return (c.tokens == 256 && c.row_blocks == 2) || c.row_blocks == 3;
}
/// Then: registers of a thread that multiplies, and of one that copies.
constexpr int consumer_registers(const TileConfig& c) { return c.row_blocks == 3 ? 160 : 232; }
constexpr int copy_registers(const TileConfig& c) { return c.row_blocks == 3 ? 32 : 40; }
/// The largest tiles without a cluster that splits k: a CTA goes on to its next tile while warps of
/// the copying warpgroup store the one before.
constexpr bool is_persistent(const TileConfig& c) {
  return c.cluster == 1 && (moves_registers(c) || c.x_sharers > 1);
}
constexpr int cta_threads(const TileConfig& c) {
  return 128 * warpgroups(c) + (moves_registers(c) || is_persistent(c) ? 128 : 32);
}
/// Fewest k tiles that it serves: one for each CTA of a cluster; of a persistent kernel one more
/// than its ring of weights holds, so that the last one is asked for in the tile's own main loop,
/// from where the copies go on to the next tile.
constexpr int least_k_tiles(const TileConfig& c) {
  return is_persistent(c) ? c.w_stages + 1 : c.cluster;
}
/// Where the tensor cores are the limit, a CTA asks for two k tiles first, and for the rest of its
/// rings when the first one is there: an SM takes in 60 bytes a clock, and all at once would delay
/// the first. Tiles of 96 and 128 tokens without a cluster serve layers that wait for memory, too,
/// and lost up to 9 % by it. Persistent kernels start once and then go on.
constexpr bool starts_small(const TileConfig& c) {
  return c.k_groups == 1 && !is_persistent(c) &&
         (c.tokens == 256 || (c.tokens >= 96 && c.cluster > 1));
}
constexpr int first_w_stages(const TileConfig& c) { return starts_small(c) ? 2 : c.w_stages; }
/// With 128 tokens or more x comes in two parts in any case, so that it does not stand in the way
/// of the first weights; the second one follows the CTA's barrier where starts_small() is false.
constexpr int first_x_stages(const TileConfig& c) {
  return starts_small(c) || c.tokens >= 128 ? 2 : c.x_stages;
}
/// Rows of a copy of x, one for a CTA and k tile, of which every CTA gets x_sharers.
constexpr int x_box_rows(const TileConfig& c, int x_rows) {
  return c.x_sharers == 1 ? x_rows : (x_rows + 8 * c.x_sharers - 1) / (8 * c.x_sharers) * 8;
}
/// A unit is 8 tokens. Warpgroups that share k in a CTA own equal parts of the tokens; of such a
/// part, every CTA of the cluster owns a run of units.
constexpr int owned_units(const TileConfig& c) { return c.tokens / 8 / c.k_groups; }
constexpr int first_unit(const TileConfig& c, int rank) {
  return owned_units(c) * rank / c.cluster;
}
constexpr int max_units(const TileConfig& c) {
  return (owned_units(c) + c.cluster - 1) / c.cluster;
}

/// Units of every owner that the epilogue exchanges and stores at a time. In a cluster as many as
/// give every thread of a warpgroup 16 bytes to store: the first are stored while later ones are on
/// their way. Others: all.
constexpr int step_units(const TileConfig& c) { return c.cluster > 1 ? 2 : owned_units(c); }
constexpr int epilogue_steps(const TileConfig& c) {
  return (max_units(c) + step_units(c) - 1) / step_units(c);
}

/// Named barriers of a CTA, of which __syncthreads has number 0: one for all warpgroups that
/// multiply, one for each of them, with two k groups one for each receiver and step, and in
/// persistent kernels two for each staging tile.
inline constexpr int named_barriers = 16;
inline constexpr int all_warpgroups_barrier = 1;
constexpr int warpgroup_barrier(int warpgroup) { return 2 + warpgroup; }
constexpr int swap_barrier(const TileConfig& c, int receiver, int step) {
  return 2 + warpgroups(c) + receiver * epilogue_steps(c) + step;
}
constexpr int staging_free_barrier(int warpgroup) { return 2 + 2 * warpgroup; }
constexpr int staging_full_barrier(int warpgroup) { return 3 + 2 * warpgroup; }

inline constexpr int staging_row_bytes = 144;     // 64 features, and 8 more against bank conflicts
inline constexpr int staging_unit_bytes = 1024;   // of persistent kernels: 8 tokens, swizzled
inline constexpr int exception_head_bytes = 384;  // of a row tile, see ExceptionHead

constexpr int w_ring_bytes(const TileConfig& c) {  // of a warpgroup
  return c.w_stages * 4 * tile_bytes(c.encoding);
}
/// Where a warpgroup puts its units together as BF16 [token][64 features].
constexpr int staging_bytes(const TileConfig& c) {
  if (c.encoding == Encoding::raw32) return 0;
  return is_persistent(c) ? c.tokens / 8 * staging_unit_bytes
                          : max_units(c) * 8 * staging_row_bytes;
}
/// What a warpgroup needs in the rings after the main loop: FP32 units of a partner, and staging.
constexpr int scratch_bytes(const TileConfig& c) {
  const int from_partner = c.k_groups == 2 ? owned_units(c) * 128 * 16 : 0;
  return from_partner + (is_persistent(c) ? 0 : staging_bytes(c));
}

/// Dynamic shared memory of a tile kernel, in bytes.
struct TileLayout {
  int x;        ///< x stages, first (1024-byte aligned)
  int staging;  ///< [warpgroup], of persistent kernels (1024-byte aligned)
  int w;        ///< weight stages [warpgroup][warp]
  int receive;  ///< FP32 [warpgroup][other CTA of the cluster][unit][thread][4]
  int heads;    ///< of the exceptions [warpgroup][warp], in persistent kernels twice
  int barriers;
  int total;
};

constexpr TileLayout tile_layout(const TileConfig& c) {
  TileLayout layout{};
  layout.staging = c.x_stages * c.tokens * 128;
  layout.w = layout.staging + (is_persistent(c) ? warpgroups(c) * staging_bytes(c) : 0);
  layout.receive = layout.w + warpgroups(c) * w_ring_bytes(c);
  layout.heads = layout.receive + warpgroups(c) * (c.cluster - 1) * max_units(c) * 128 * 16;
  const int warp_heads = has_exceptions(c) ? (is_persistent(c) ? 2 : 1) * exception_head_bytes : 0;
  layout.barriers = layout.heads + 4 * warpgroups(c) * warp_heads;
  layout.total = layout.barriers + 8 * (2 * c.x_stages + warpgroups(c) * epilogue_steps(c));
  return layout;
}

constexpr bool is_valid(const TileConfig& c) {
  // A slot of x is released when the next k tile of its group has started: two a group at least.
  const int scratch_room =
      c.k_groups == 2 ? c.x_stages * c.tokens * 128 / warpgroups(c) : w_ring_bytes(c);
  return (c.k_groups == 1 || c.k_groups == 2) && c.x_stages % c.k_groups == 0 &&
         c.x_stages >= 2 * c.k_groups && scratch_bytes(c) <= scratch_room && c.cluster >= 1 &&
         first_w_stages(c) <= c.w_stages && first_x_stages(c) <= c.x_stages &&
         (c.k_groups == 1 ||
          swap_barrier(c, warpgroups(c) - 1, epilogue_steps(c) - 1) < named_barriers) &&
         c.cluster <= 8 && (!moves_registers(c) || c.k_groups == 1) &&
         (c.x_sharers == 1 || (c.x_sharers == 2 && is_persistent(c))) &&
         (!is_persistent(c) || (c.k_groups == 1 && c.encoding != Encoding::raw32 &&
                                staging_full_barrier(warpgroups(c) - 1) < named_barriers)) &&
         (c.encoding != Encoding::raw32 || c.row_blocks == 1) &&
         tile_layout(c).total <= smem_limit_bytes;
}
constexpr bool all_tiles_valid() {
  for (const TileConfig& c : tile_table) {
    if (!is_valid(c)) return false;
  }
  return true;
}
static_assert(all_tiles_valid(), "an instance of tile_table breaks a limit of the kernel");

}  // namespace slimgemm::plan
