// SPDX-License-Identifier: Apache-2.0
// Counting exponents: what the host packer decides by, and what inspecting a matrix shows.
#pragma once

#include <slimgemm/packed.hpp>

#include "codec/window.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm {

/// How many of the weights have each biased exponent.
ExponentHistogram count_exponents(std::span<const std::uint16_t> w, int threads);

/// How many of the weights lie outside the window.
std::uint64_t count_exceptions(std::span<const std::uint16_t> w, int window_base);

/// Fills extra_begin[0 .. row_tiles] of a row-major matrix with k columns and returns how many
/// exception groups it has, as accumulate_extra_groups.
std::uint64_t count_groups(std::span<const std::uint16_t> w, std::size_t k, int window_base,
                           int threads, std::uint32_t* extra_begin);

/// What pack() would make of a matrix, without making it.
struct PackForecast {
  ExponentHistogram exponents{};
  Bf16Encoding choice;
  std::uint64_t total_bytes = 0;  ///< of the packed matrix, exactly
};

/// Errors: invalid_argument as pack().
PackForecast forecast_pack(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                           const PackOptions& options = {});

}  // namespace slimgemm
