// SPDX-License-Identifier: Apache-2.0
// What the host hands to a stream kernel.
#pragma once

#include "format/layout.hpp"

#include <cuda.h>

#include <cstdint>

namespace slimgemm::cuda {

/// Where a kernel finds the exceptions of a matrix (docs/format.md section 4).
struct ExceptionView {
  const format::ExceptionGroup* groups;
  const std::uint32_t* extra_begin;
  std::uint32_t row_tiles;  // of the whole matrix
};

struct StreamArgs {
  CUtensorMap x_map;  // 3-D {64, m, K / 64}, box {64, x_rows, k_warps}
  bool x_map_valid;   // base and row stride of x are multiples of 16 bytes, K at least 64
  bool all_x_by_tma;  // and K is a multiple of 64
  const unsigned char* tiles;
  ExceptionView exceptions;
  const std::uint16_t* x;
  void* out;  // m x rows, BF16 or FP32
  std::int64_t x_row_stride;
  std::int64_t m;
  std::int64_t rows;  // output features of this call
  int k;
  int k_tiles;
  int first_row_tile;  // of the matrix
  int row_tiles;       // of this call
  int x_rows;          // min(m, 8 * token_tiles)
  float scale;         // of the decoded weights
  bool nonfinite;      // raw32: some weight is Inf or NaN
};

}  // namespace slimgemm::cuda
