// SPDX-License-Identifier: Apache-2.0
// What the host hands to a stream kernel.
#pragma once

#include "format/device_image.hpp"
#include "format/layout.hpp"
#include "plan/kernel_table.hpp"

#include <cstdint>

namespace slimgemm::cuda {

using format::ExceptionHead;
using format::head_groups;

/// Where a kernel finds the exceptions of a matrix.
struct ExceptionView {
  std::uint64_t head_offset;           // of a row tile's ExceptionHead, in the row tile
  const format::ExceptionGroup* more;  // the groups that are not in a head
};

/// What turns packed bytes into weights.
struct DecodeArgs {
  std::uint32_t window;  // split12: window_base / 2 in each of the four bytes
  bool nonfinite;        // raw32: some weight is Inf or NaN
};

struct StreamArgs {
  // First what the first load needs.
  const unsigned char* tiles;
  std::uint64_t row_tile_bytes;  // from a row tile to the next
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
