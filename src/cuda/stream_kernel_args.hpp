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
  CUtensorMap x_map;  // 3-D {64, m, K / 64}, box {64, x_rows, k_warps}; 
}  // namespace slimgemm::cuda
