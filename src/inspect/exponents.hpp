// SPDX-License-Identifier: Apache-2.0
// What the exponents of BF16 weights say about packing them. A BF16 weight is a sign bit, 8 bits of
// exponent and 7 of mantissa; split12 saves bits of the exponent alone.
#pragma once

#include "codec/exponents.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace slimgemm::inspect {

/// Bits of a weight beside its exponent: sign and mantissa.
inline constexpr double other_bits = 8;

/// Counts by distance from the first exponent of the window that a weight's matrix has: index
/// relative_zero is that exponent, the window ends before relative_zero + 16.
inline constexpr std::size_t relative_zero = 240;
using RelativeHistogram = std::array<std::uint64_t, relative_zero + 256>;

/// Entropy in bits: the fewest bits an exponent can take on average under any code that codes one
/// exponent at a time, knowing how often each occurs. 0 for an empty histogram.
double entropy_bits(std::span<const std::uint64_t> histogram);

/// Exact counts of one matrix, or the sum over several.
struct ExponentStatistics {
  ExponentHistogram histogram{};  ///< by biased exponent
  RelativeHistogram relative{};   ///< without zeros, subnormals, Inf and NaN
  std::uint64_t weights = 0;
  std::uint64_t exceptions = 0;  ///< outside the window of their matrix, also where it is raw16
  std::uint64_t matrices = 0;
  std::uint64_t raw16_matrices = 0;  ///< that stay at 16 bits: too many exceptions
  std::uint64_t packed_bytes = 0;    ///< of the packed matrices
  int window_low = 0;                ///< smallest first exponent of a window
  int window_high = 0;               ///< largest

  [[nodiscard]] std::uint64_t zeros() const { return histogram[0]; }  ///< subnormals, too
  [[nodiscard]] std::uint64_t nonfinite() const { return histogram[255]; }
  [[nodiscard]] double entropy() const { return entropy_bits(histogram); }
  /// Bits a weight, all of the packed form included.
  [[nodiscard]] double stored_bits() const;
  /// other_bits and the entropy of the exponent.
  [[nodiscard]] double ideal_bits() const { return other_bits + entropy(); }
  [[nodiscard]] double exception_share() const;

  void add(const ExponentStatistics& other);
};

/// Of a row-major n x k matrix that is not packed: what pack() would make of it.
ExponentStatistics measure(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k);

/// Of a packed BF16 matrix as it is: unpacks it. `scratch` is resized to n * k.
ExponentStatistics measure(const PackedMatrix& packed, std::vector<std::uint16_t>& scratch);

}  // namespace slimgemm::inspect
