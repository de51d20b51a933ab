// SPDX-License-Identifier: Apache-2.0
// When the BF16 dot product gives what FP32 multiplication gives.
#pragma once

#include "cpu/kernels.hpp"

#include <cstdint>

namespace slimgemm::cpu {

/// Smallest biased exponent of the normal weights of a split12 matrix.
int smallest_normal_exponent(const Weights& weights);

/// Whether vdpbf16ps may multiply this x: no value of x is subnormal, Inf or NaN, and no product
/// with a normal weight is smaller than the smallest normal FP32, so that nothing is taken for zero
/// but subnormal weights, which the kernel adds by itself.
/// weight_exponent: smallest_normal_exponent() of the weights.
bool dot_is_exact(const std::uint16_t* x, std::int64_t tokens, std::int64_t row_stride,
                  std::int64_t k, int weight_exponent);

}  // namespace slimgemm::cpu
