// SPDX-License-Identifier: Apache-2.0
// What the backend knows of the kernels: one table of function pointers per instruction set and
// encoding. gemm-inl.hpp has the kernels themselves, docs/kernels-cpu.md the picture.
#pragma once

#include <slimgemm/types.hpp>

#include "format/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm::cpu {

// Weights and x meet in chunks of 64 bytes: sixteen 32-bit lanes, eight of row r and eight of row
// r + 8 of a tile. A "step" is one chunk of x and, for each of the eight row pairs of a tile, one
// chunk of decoded weights.
inline constexpr int chunk_bytes = 64;
inline constexpr int row_pairs = format::tile_rows / 2;
// Steps that are decoded at once where more than a few tokens share them: 16 KB of weights.
inline constexpr int panel_steps = 32;
// Row tiles that share a pass over a panel of x where x has more than one block.
inline constexpr int group_tiles = 8;

// A packed matrix in place. The pointers live as long as the PackedMatrix.
struct Weights {
  const std::uint8_t* tiles = nullptr;
  std::span<const format::ExceptionGroup> groups;  // split12
  std::span<const std::uint32_t> extra_begin;      // split12
  std::int64_t row_tiles = 0;
  std::int64_t k_tiles = 0;
  std::int64_t k = 0;
  int window_base = 0;
  bool has_subnormals = false;  // split12: some exception is subnormal
};

// Tokens that go through the weights together, and where their results go.
struct Batch {
  const std::uint16_t* x = nullptr;
  std::int64_t x_row_stride = 0;
  std::int64_t k = 0;
  std::int64_t tokens = 0;
  std::int64_t blocks = 0;           // of at most KernelTable::max_block_tokens tokens each
  std::uint8_t* arranged = nullptr;  // x in the order of the weights' chunks
  void* out = nullptr;               // tokens x out_row_stride
  std::int64_t out_row_stride = 0;
  std::int64_t row_begin = 0;  // of the weights; column 0 of out
  std::int64_t row_end = 0;
  bool panels_only = false;  // whatever the number of tokens: sums of one order

  [[nodiscard]] std::int64_t block_begin(std::int64_t block) const {
    return tokens * block / blocks;
  }
};

// The kernels of one instruction set for one encoding.
struct KernelTable {
  const char* target;    // "avx512"
  int max_block_tokens;  // tokens that share a pass over a decoded panel
  int direct_tokens;     // up to so many tokens the weights stay in registers
  int k16_steps;         // steps of 16 columns: 2 multiply FP32, 1 multiplies pairs of BF16

  // Writes batch.arranged for items [begin, end) of panels(k_tiles) * batch.blocks.
  void (*arrange_x)(const Batch& batch, std::int64_t begin, std::int64_t end);
  // Computes row tiles [tile_begin, tile_end) of batch.out.
  void (*multiply)(const Weights& weights, const Batch& batch, std::int64_t tile_begin,
                   std::int64_t tile_end);

  [[nodiscard]] std::int64_t panels(std::int64_t k_tiles) const {
    const std::int64_t panel_tiles = panel_steps / (format::fragments_per_tile * k16_steps);
    return (k_tiles + panel_tiles - 1) / panel_tiles;
  }
  [[nodiscard]] std::size_t arranged_bytes(std::int64_t k_tiles, std::int64_t tokens) const {
    return static_cast<std::size_t>(k_tiles) * format::fragments_per_tile * k16_steps *
           static_cast<std::size_t>(tokens) * chunk_bytes;
  }
};

// Indexed by encoding_index().
struct KernelTables {
  KernelTable tables[3];
};
constexpr std::size_t encoding_index(Encoding encoding) {
  return static_cast<std::size_t>(encoding) - 1;
}

const KernelTables& scalar_kernels();
// Null where this build or this machine has no such instructions.
const KernelTables* avx2_kernels();
const KernelTables* avx512_kernels();
// split12 only, x and weights as vdpbf16ps takes them: see dot_is_exact().
const KernelTable* avx512bf16_kernels();

// Memory of the calling thread that is kept between calls; contents undefined.
// Errors: out_of_memory.
enum class ScratchUse { arranged_x, kernel };
std::uint8_t* thread_scratch(ScratchUse use, std::size_t bytes);

}  // namespace slimgemm::cpu
