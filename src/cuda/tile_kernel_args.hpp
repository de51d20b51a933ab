// SPDX-License-Identifier: Apache-2.0
// What the host hands to a tile kernel.
#pragma once

#include "cuda/stream_kernel_args.hpp"

#include <cuda.h>

namespace slimgemm::cuda {

struct TileArgs {
  CUtensorMap x_map;    // 3-D {64, m, K / 64}, box {64, x_box_rows, 1}
  CUtensorMap out_map;  // of persistent kernels, if out_vectors: 2-D {rows, m}, box {64, 8}
  const unsigned char* tiles;
  std::uint64_t row_tile_bytes;  // from a row tile to the next
  ExceptionView exceptions;
  void* out;  // m x rows, BF16 or FP32
  std::uint32_t m;
  std::uint32_t rows;    // output features of this call
  bool out_vectors;      // rows of BF16 out begin and end at multiples of 16 bytes
  std::uint32_t x_rows;  // tokens of a CTA, at most C.tokens
  int k_tiles;
  int first_row_tile;  // of the matrix
  int last_row_tile;   // of this call, in the matrix
  int token_blocks;    // these three for persistent kernels
  int token_group;     // token blocks that are done for all rows before the next
  int row_groups;
  DecodeArgs decode;
  bool dependent;  // as in StreamArgs
};

/// The k tiles, rows and tokens of a CTA, of a persistent kernel those of its present tile.
struct TileShare {
  int k_tile_begin;
  int k_tiles;
  int row_tile;         // first, in the matrix
  int last_row_tile;    // of the call, in the matrix
  std::uint32_t token;  // first
  std::uint32_t rank;
};

}  // namespace slimgemm::cuda
