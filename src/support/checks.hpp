// SPDX-License-Identifier: Apache-2.0
// Arithmetic on sizes that come from outside.
#pragma once

#include <cstdint>
#include <optional>

namespace slimgemm {

/// a * b, or nothing where it does not fit 64 bits.
inline std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

/// a + b, or nothing where it does not fit 64 bits.
inline std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

/// The smallest multiple of `alignment` (a power of two) that is at least `value`.
inline std::optional<std::uint64_t> checked_align_up(std::uint64_t value, std::uint64_t alignment) {
  const auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

}  // namespace slimgemm
