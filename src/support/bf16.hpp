// SPDX-License-Identifier: Apache-2.0
// BF16 as raw 16-bit words.
#pragma once

#include <bit>
#include <cstdint>

namespace slimgemm {

inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// Nearest BF16, ties to even. A NaN stays a NaN.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
}

/// Zero exponent, nonzero mantissa.
constexpr bool bf16_is_subnormal(std::uint16_t bits) {
  return (bits & 0x7F80U) == 0 && (bits & 0x7FU) != 0;
}

}  // namespace slimgemm
