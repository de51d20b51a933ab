// SPDX-License-Identifier: Apache-2.0
// TMA descriptors of x and out.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace slimgemm::cuda {

/// Whether the base and the row stride of x are multiples of 16 bytes, as TMA wants it.
bool x_is_aligned(const std::uint16_t* x, std::int64_t row_stride);

/// Describes x (m x k BF16, row_stride elements apart) as {64 columns, m rows, k / 64 k tiles} with
/// boxes of {64, box_rows, box_k_tiles} and the 128-byte swizzle. Rows beyond m read as zero.
/// Errors: device_error with the driver's status, unsupported on a driver without tensor maps.
CUtensorMap make_x_map(const std::uint16_t* x, std::int64_t m, std::int64_t k,
                       std::int64_t row_stride, int box_rows, int box_k_tiles);

/// Describes out (m x rows BF16, dense) as {rows, m} with boxes of {64, 8} and the 128-byte
/// swizzle. Errors: as make_x_map.
CUtensorMap make_out_map(void* out, std::int64_t m, std::int64_t rows);

}  // namespace slimgemm::cuda
