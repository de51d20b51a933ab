// SPDX-License-Identifier: Apache-2.0
// What the host hands to a stream kernel.
#pragma once

#include "format/layout.hpp"
#include "plan/kernel_table.hpp"

#include <cstdint>

namespace slimgemm::cuda {

/// Where a kernel finds the exceptions of a matrix. `groups` and `extra_begin` lie as in the file
/// (docs/format.md section 4). `head` repeats the first two groups of every row tile side by side,
/// so that they are found without a look at extra_begin: a load that depends on another one costs
/// microseconds while the weights stream. Byte 7 of a head's first entry is 1 if the row tile has
/// more than two groups.
struct ExceptionView {
  const format::ExceptionGroup* head;
  const format::ExceptionGroup* groups;
  const std::uint32_t* extra_begin;
  std::uint32_t row_tiles;  // of the whole matrix
};
inline constexpr int head_groups = 2;

/// What turns packed bytes into weights.
struct DecodeArgs {
  std::uint32_t window;  // split12: window_base / 2 in each of the four bytes
  bool nonfinite;        // raw32: some weight is Inf or NaN
};

struct StreamArgs {
  // First what the first load needs.
  const unsigned char* tiles;
  std::uint64_t row_tile_bytes;  // of all k tiles of a row tile
  const std::uint16_t* x;
  std::uint32_t x_stride_bytes;
  int m;
  int k;
  int k_tiles;
  int first_row_tile;  // of the matrix
  int last_row_tile;   // of this call, in the matrix
  int x_rows;          // min(m, 8 * token_tiles), what shared memory is laid out for
  bool dependent;  // a programmatic dependent launch: x is ready only after a grid dependency wait
  DecodeArgs decode;
  ExceptionView exceptions;
  plan::StreamLayout layout;
  void* out;  // m x rows, BF16 or FP32
  int rows;   // output features of this call
};

}  // namespace slimgemm::cuda
