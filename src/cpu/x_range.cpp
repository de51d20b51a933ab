// SPDX-License-Identifier: Apache-2.0
#include "cpu/x_range.hpp"

#include "cpu/exception_cursor.hpp"

#include <algorithm>

namespace slimgemm::cpu {
namespace {

constexpr int exponent_bias = 127;
constexpr int mantissa_bits = 7;
constexpr std::uint16_t magnitude_mask = 0x7FFF;
constexpr std::uint16_t infinity = 0x7F80;

}  // namespace

int smallest_normal_exponent(const Weights& weights) {
  // A window from 0 on still holds no exponent below 1.
  int smallest = std::max(1, weights.window_base);
  for (const format::ExceptionGroup& group : weights.groups) {
    for (const format::ExceptionEntry& e : group.entries) {
      const int exponent = (e.bits & magnitude_mask) >> mantissa_bits;
      if (exponent > 0) smallest = std::min(smallest, exponent);
    }
  }
  return smallest;
}

bool dot_is_exact(const std::uint16_t* x, std::int64_t tokens, std::int64_t row_stride,
                  std::int64_t k, int weight_exponent) {
  // Magnitudes less one, so that zeros wrap around to the largest and don't count as smallest.
  std::uint16_t smallest = 0xFFFF;
  std::uint16_t largest = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::uint16_t* const row = x + t * row_stride;
    for (std::int64_t i = 0; i < k; ++i) {
      const auto magnitude = static_cast<std::uint16_t>(row[i] & magnitude_mask);
      smallest = std::min(smallest, static_cast<std::uint16_t>(magnitude - 1));
      largest = std::max(largest, magnitude);
    }
  }
  if (largest >= infinity) return false;
  if (smallest == 0xFFFF) return true;  // all zeros
  const int exponent = (smallest + 1) >> mantissa_bits;
  // 2^(exponent - bias) * 2^(weight_exponent - bias) >= 2^(1 - bias)
  return exponent > 0 && exponent + weight_exponent > exponent_bias;
}

}  // namespace slimgemm::cpu
