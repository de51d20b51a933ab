// SPDX-License-Identifier: Apache-2.0
// The closed list of GPU kernel instances. The plan chooses from it, src/cuda/instances compiles it.
// Pure host C++: no CUDA headers, so that planning is tested without a GPU.
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
/// row_groups * k_warps consumer warps each own row_tiles row tiles and every k_warps-th k tile; one
/// more warp copies x, and for split12 another computes the exceptions.
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

constexpr int tile_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::split12: return format::split12_tile_bytes;
    case Encoding::raw16: return format::raw16_tile_bytes;
    case Encoding::raw32: return format::raw32_tile_bytes;
  }
  return 0;
}

constexpr int cta_row_tiles(const StreamConfig& c) { return c.row_groups * c.row_tiles; }
constexpr int cta_tokens(const StreamConfig& c) { return 8 * c.token_tiles; }
constexpr int consumer_warps(const StreamConfig& c) { return c.row_groups * c.k_warps; }
constexpr bool has_exceptions(const StreamConfig& c) { return c.encoding == Encoding::split12; }
constexpr int cta_threads(const StreamConfig& c) {
  return 32 * (consumer_warps(c) + (has_exceptions(c) ? 2 : 1));
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
    {Encoding::raw32, 1, 1, 1, 8, 2, 2, 8, 1},
    {Encoding::raw32, 1, 1, 1, 8, 2, 2, 1, 1},
    // Up to 16.
    {Encoding::split12, 2, 1, 1, 8, 4, 4, 1, 2},
    {Encoding::split12, 2, 1, 4, 4, 4, 4, 1, 1},
    {Encoding::split12, 2, 2, 1, 8, 4, 4, 1, 1},
    {Encoding::split12, 2, 2, 2, 8, 2, 3, 1, 1},
    {Encoding::raw16, 2, 1, 2, 8, 2, 3, 1, 1},
    {Encoding::raw32, 2, 1, 1, 8, 2, 2, 8, 1},
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

/// Floats from one token to the next in partial sums: 16-row tiles plus 4, which keeps the stores of
/// MMA fragments free of bank conflicts.
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

}  // namespace slimgemm::plan
