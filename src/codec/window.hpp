// SPDX-License-Identifier: Apache-2.0
// Which 16 exponents the nibbles can say, and whether that is worth it. Host and device packers use
// these same functions, so that both give the same bytes.
#pragma once

#include <slimgemm/packed.hpp>

#include <array>
#include <cstdint>

namespace slimgemm {

/// How many weights have each of the 256 biased exponents.
using ExponentHistogram = std::array<std::uint64_t, 256>;

/// True where split12 with this window base stores the weight in its tile; the other weights are
/// exceptions.
constexpr bool in_window(std::uint16_t bits, int window_base) {
  const int exponent = bits >> 7 & 0xFF;
  return exponent >= window_base && exponent < window_base + 16 && exponent != 0 && exponent != 255;
}

struct Window {
  int base = 0;               // even, 0 to 238
  std::uint64_t covered = 0;  // weights inside
};

/// The window that covers the most weights; of equals, the one with the largest base.
Window best_window(const ExponentHistogram& histogram);

/// What becomes of a BF16 matrix.
struct Bf16Encoding {
  Encoding encoding = Encoding::raw16;
  int window_base = 0;                // split12
  std::uint64_t exception_count = 0;  // split12
  bool has_nonfinite = false;
};

/// split12, or raw16 where the share of exceptions exceeds max_exception_rate.
Bf16Encoding choose_encoding(const ExponentHistogram& histogram, double max_exception_rate);

/// Errors: invalid_argument if n or k is not in [1, 2^31 - 1] or the rate not in [0, 1].
void check_pack_arguments(std::int64_t n, std::int64_t k, const PackOptions& options);

/// Errors: invalid_argument for a negative number, or one that is too large for an image.
void check_spare_groups(std::int64_t spare_groups);

/// Groups that row tile needs beyond its first one, for so many exceptions.
constexpr std::uint64_t extra_groups(std::uint64_t exceptions) {
  return exceptions <= 16 ? 0 : (exceptions + 15) / 16 - 1;
}

/// Turns extra_begin[r + 1] = extra groups of row tile r, for all r, into running sums from
/// extra_begin[0] = 0. Returns row_tiles + all extra groups; above max_group_count some sums do not
/// fit and the matrix is to be stored as raw16.
std::uint64_t accumulate_extra_groups(std::uint32_t* extra_begin, std::uint64_t row_tiles);
inline constexpr std::uint64_t max_group_count = 0xFFFFFFFF;

}  // namespace slimgemm
