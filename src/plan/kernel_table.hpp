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

/// Shape of one stream kernel instance (src/cuda/stream_kernel.cuh), its only template parameter.
///
/// A CTA computes row_groups * row_tiles * 16 output features for up to 8 * token_tiles tokens. Its
/// row_groups * k_warps consumer warps each own row_tiles row tiles and every k_warps-th k tile;
/// one more warp copies x, and for split12 up to four more compute the exceptions.
struct StreamConfig {
  Encoding encoding;
  int token_tiles;  ///< n8 tiles: 8 * token_tiles tokens a CTA
  int row_tiles;    ///< 16-row tiles a warp; x fragments are reused over them
  int row_groups;   ///< warps side by side over rows
  int k_warps;      ///< warps that share the k tiles of a row group
  int stages;       ///< k tiles in flight a warp (power of two)
  int x_slots;      ///< chunks of k_warps k tiles of x in shared memory
  int cluster;      ///< CTAs that split k between them and meet in distributed shared memory
  int min_ctas;     ///< CTAs an SM is meant to hold

  friend constexpr bool operator==(const StreamConfig&, const StreamConfig&) = default;
};

using format::tile_bytes;

constexpr int cta_row_tiles(const StreamConfig& c) { return c.row_groups * c.row_tiles; }
constexpr int cta_tokens(const StreamConfig& c) { return 8 * c.token_tiles; }
constexpr int consumer_warps(const StreamConfig& c) { return c.row_groups * c.k_warps; }
constexpr bool has_exceptions(const StreamConfig& c) { return c.encoding == Encoding::split12; }
/// Warps that work on the exceptions: one a row tile, at most four (with 64 tokens one, which
/// leaves the others more registers).
constexpr int exception_warps(const StreamConfig& c) {
  if (!has_exceptions(c)) return 0;
  const int most = c.token_tiles < 8 ? 4 : 1;
  return cta_row_tiles(c) < most ? cta_row_tiles(c) : most;
}
constexpr int cta_threads(const StreamConfig& c) {
  return 32 * (consumer_warps(c) + 1 + exception_warps(c));
}

inline constexpr StreamConfig stream_table[] = {
    // encoding, token_tiles, row_tiles, row_groups, k_warps, stages, x_slots, cluster, min_ctas
    // Up to 8 tokens.
    {Encoding::split12, 1, 1, 1, 8, 4, 4, 1, 2},
    {Encoding::split12, 1, 1, 1, 16, 4, 4, 1, 1},
    {Encoding::split12, 1, 1, 4, 4, 4, 4, 1, 1},
    {Encoding::split12, 1, 2, 1, 8, 4, 4, 1, 1},
    {Encoding::raw16, 1, 1, 1, 8, 4, 4, 1, 1},
    {Encoding::raw16, 1, 1, 4, 4, 4, 4, 1, 1},
    {Encoding::raw32, 1, 1, 1, 8, 2, 2, 8, 2},
    {Encoding::raw32, 1, 1, 1, 8, 2, 2, 1, 1},
    // Up to 16.
    {Encoding::split12, 2, 1, 1, 8, 4, 4, 1, 2},
    {Encoding::split12, 2, 1, 4, 4, 4, 4, 1, 1},
    {Encoding::split12, 2, 2, 1, 8, 4, 4, 1, 1},
    {Encoding::split12, 2, 2, 2, 8, 2, 3, 1, 1},
    {Encoding::raw16, 2, 1, 2, 8, 2, 3, 1, 1},
    {Encoding::raw32, 2, 1, 1, 8, 2, 2, 8, 2},
    {Encoding::raw32, 2, 1, 1, 8, 2, 2, 1, 1},
    // Up to 32.
    {Encoding::split12, 4, 1, 1, 8, 4, 3, 1, 1},
    {Encoding::split12, 4, 1, 4, 4, 4, 4, 1, 1},
    {Encoding::split12, 4, 2, 1, 8, 4, 3, 1, 1},
    {Encoding::split12, 4, 2, 2, 4, 4, 5, 1, 1},
    {Encoding::raw16, 4, 1, 2, 4, 4, 4, 1, 1},
    {Encoding::raw32, 4, 1, 1, 8, 2, 2, 8, 1},
    {Encoding::raw32, 4, 1, 1, 8, 2, 2, 1, 1},
    // Blocks of 64: any m, in as many token blocks as it takes.
    {Encoding::split12, 8, 1, 1, 8, 4, 2, 1, 1},
    {Encoding::split12, 8, 2, 2, 4, 4, 2, 1, 1},
    {Encoding::raw16, 8, 2, 2, 4, 2, 2, 1, 1},
    {Encoding::raw32, 8, 1, 1, 8, 2, 2, 8, 1},
    {Encoding::raw32, 8, 1, 2, 4, 2, 2, 1, 1},
};
inline constexpr std::size_t stream_count = sizeof(stream_table) / sizeof(stream_table[0]);

/// Where the parts of a stream kernel's dynamic shared memory lie, in bytes.
struct StreamLayout {
  int x;             ///< after the weight ring, which starts at 0
  int x_slot_bytes;  ///< a multiple of 1024, as TMA's 128-byte swizzle wants
  int partials;      ///< FP32 [k_warps][token][row]; 0 where it shares the ring's memory
  int corrections;   ///< FP32 [2][token][row], split12 only
  int exchange;      ///< FP32 [cluster][...], what the other CTAs of the cluster send
  int barriers;      ///< a full and an empty mbarrier for each slot of x
  int total;
};

inline constexpr int smem_limit_bytes = 227 * 1024;  // dynamic shared memory of a CTA on Hopper

/// Floats from one token to the next in partial sums: 16-row tiles plus 4, which keeps the stores
/// of MMA fragments free of bank conflicts.
constexpr int partial_stride(const StreamConfig& c) { return cta_row_tiles(c) * 16 + 4; }

/// x_rows: tokens of x kept a k tile, min(m, 8 * token_tiles).
constexpr StreamLayout stream_layout(const StreamConfig& c, int x_rows) {
  const auto align = [](int bytes) { return (bytes + 1023) / 1024 * 1024; };
  StreamLayout layout{};
  layout.x = align(consumer_warps(c) * c.stages * c.row_tiles * tile_bytes(c.encoding));
  layout.x_slot_bytes = align(c.k_warps * x_rows * 128);
  const int pipeline = layout.x + c.x_slots * layout.x_slot_bytes;
  const int token_block = cta_tokens(c) * partial_stride(c) * 4;
  const int partials = c.k_warps * token_block;
  const int corrections = has_exceptions(c) ? 2 * token_block : 0;
  const int exchange = c.cluster > 1 ? cta_tokens(c) * cta_row_tiles(c) * 64 : 0;
  int end = pipeline;
  layout.corrections = end;
  end += corrections;
  layout.exchange = end;
  end += exchange;
  layout.barriers = end;
  end += 16 * c.x_slots;
  // Partial sums have memory of their own if that leaves room for min_ctas CTAs on an SM.
  const bool fits = c.min_ctas * (end + partials + 1024) <= smem_limit_bytes + 1024;
  if (fits || partials > layout.corrections) {
    layout.partials = end;
    end += partials;
  } else {
    layout.partials = 0;
  }
  layout.total = end;
  return layout;
}

constexpr bool is_valid(const StreamConfig& c) {
  return (c.stages & (c.stages - 1)) == 0 && (cta_row_tiles(c) * 8) % c.cluster == 0 &&
         cta_threads(c) <= 1024 && cta_threads(c) * c.min_ctas <= 2048 &&
         stream_layout(c, 1).total <= smem_limit_bytes &&
         stream_layout(c, cta_tokens(c)).total <= smem_limit_bytes;
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
/// has k_groups warpgroups that take the k tiles in turn; `cluster` CTAs split k between them. One
/// more warpgroup copies weights and x.
struct TileConfig {
  Encoding encoding;
  int tokens;      ///< wgmma's n: 64, 128 or 256
  int row_blocks;  ///< 64-row blocks a CTA; an x tile is reused over them
  int k_groups;    ///< warpgroups that share a row block and alternate k tiles
  int x_stages;    ///< k tiles of x in flight (a multiple of k_groups)
  int w_stages;    ///< k tiles of weights in flight (a multiple of k_groups)
  int cluster;     ///< CTAs that split k

  friend constexpr bool operator==(const TileConfig&, const TileConfig&) = default;
};

inline constexpr TileConfig tile_table[] = {
    // encoding, tokens, row_blocks, k_groups, x_stages, w_stages, cluster
    {Encoding::split12, 64, 1, 2, 10, 8, 1}, {Encoding::split12, 64, 1, 2, 10, 8, 2},
    {Encoding::split12, 64, 1, 2, 10, 8, 3}, {Encoding::split12, 128, 1, 2, 8, 8, 1},
    {Encoding::split12, 128, 1, 2, 6, 8, 2}, {Encoding::split12, 128, 1, 2, 6, 8, 3},
    {Encoding::split12, 128, 2, 1, 6, 6, 1}, {Encoding::split12, 128, 2, 1, 6, 6, 2},
    {Encoding::split12, 128, 2, 1, 6, 5, 3}, {Encoding::split12, 256, 1, 1, 4, 6, 1},
    {Encoding::raw16, 64, 1, 2, 10, 8, 1},   {Encoding::raw16, 64, 1, 2, 10, 8, 2},
    {Encoding::raw16, 128, 1, 2, 8, 6, 1},   {Encoding::raw16, 128, 2, 1, 6, 5, 1},
    {Encoding::raw16, 128, 2, 1, 6, 4, 2},
};
inline constexpr std::size_t tile_count = sizeof(tile_table) / sizeof(tile_table[0]);

constexpr int warpgroups(const TileConfig& c) { return c.row_blocks * c.k_groups; }
constexpr int cta_threads(const TileConfig& c) { return 128 * (warpgroups(c) + 1); }
/// Warpgroups, over the cluster, that hold partial sums of the same results. Each ends up owning a
/// run of the token units (8 tokens).
constexpr int partners(const TileConfig& c) { return c.k_groups * c.cluster; }
constexpr int token_units(const TileConfig& c) { return c.tokens / 8; }
constexpr int first_unit(const TileConfig& c, int partner) {
  return token_units(c) * partner / partners(c);
}
constexpr int max_units(const TileConfig& c) {
  return (token_units(c) + partners(c) - 1) / partners(c);
}

/// Dynamic shared memory of a tile kernel, in bytes.
struct TileLayout {
  int x;         ///< x stages, first (1024-byte aligned)
  int w;         ///< weight stages
  int exchange;  ///< FP32 [warpgroup][other partner][unit][thread][4]
  int staging;   ///< BF16 [warpgroup][token][64 + 8]
  int barriers;
  int total;
};
inline constexpr int staging_row_bytes = 144;

constexpr TileLayout tile_layout(const TileConfig& c) {
  TileLayout layout{};
  layout.w = c.x_stages * c.tokens * 128;
  layout.exchange = layout.w + c.w_stages * c.row_blocks * 4 * tile_bytes(c.encoding);
  layout.staging = layout.exchange + warpgroups(c) * (partners(c) - 1) * max_units(c) * 128 * 16;
  layout.barriers = layout.staging + warpgroups(c) * max_units(c) * 8 * staging_row_bytes;
  layout.total = layout.barriers + 8 * (2 * c.x_stages + 2 * c.w_stages + warpgroups(c));
  return layout;
}

constexpr bool is_valid(const TileConfig& c) {
  // A slot of x is released when the next k tile of its group has started: two a group at least.
  return c.x_stages % c.k_groups == 0 && c.w_stages % c.k_groups == 0 &&
         c.x_stages >= 2 * c.k_groups && warpgroups(c) <= 2 &&
         tile_layout(c).total <= smem_limit_bytes && c.encoding != Encoding::raw32;
}
constexpr bool all_tiles_valid() {
  for (const TileConfig& c : tile_table) {
    if (!is_valid(c)) return false;
  }
  return true;
}
static_assert(all_tiles_valid(), "an instance of tile_table breaks a limit of the kernel");

}  // namespace slimgemm::plan
