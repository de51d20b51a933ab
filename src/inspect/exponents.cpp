// SPDX-License-Identifier: Apache-2.0
#include "inspect/exponents.hpp"

#include "format/layout.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace slimgemm::inspect {
namespace {

void place_relative(const ExponentHistogram& histogram, int window_base, RelativeHistogram& to) {
  for (std::size_t e = 1; e < 255; ++e) {
    to[relative_zero + e - static_cast<std::size_t>(window_base)] += histogram[e];
  }
}

std::uint64_t total_of(std::span<const std::uint64_t> histogram) {
  return std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
}

}  // namespace

double entropy_bits(std::span<const std::uint64_t> histogram) {
  const auto total = static_cast<double>(total_of(histogram));
  double bits = 0;
  for (const std::uint64_t count : histogram) {
    if (count == 0) continue;
    const double share = static_cast<double>(count) / total;
    bits -= share * std::log2(share);
  }
  return bits > 0 ? bits : 0;  // one exponent alone gives -0
}

double ExponentStatistics::stored_bits() const {
  return weights == 0 ? 0 : 8 * static_cast<double>(packed_bytes) / static_cast<double>(weights);
}

double ExponentStatistics::exception_share() const {
  return weights == 0 ? 0 : static_cast<double>(exceptions) / static_cast<double>(weights);
}

void ExponentStatistics::add(const ExponentStatistics& other) {
  const bool first = matrices == 0;
  window_low = first ? other.window_low : std::min(window_low, other.window_low);
  window_high = first ? other.window_high : std::max(window_high, other.window_high);
  for (std::size_t i = 0; i < histogram.size(); ++i) histogram[i] += other.histogram[i];
  for (std::size_t i = 0; i < relative.size(); ++i) relative[i] += other.relative[i];
  weights += other.weights;
  exceptions += other.exceptions;
  matrices += other.matrices;
  raw16_matrices += other.raw16_matrices;
  packed_bytes += other.packed_bytes;
}

ExponentStatistics measure(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k) {
  const PackForecast forecast = forecast_pack(w, n, k);
  const Window window = best_window(forecast.exponents);
  ExponentStatistics statistics;
  statistics.histogram = forecast.exponents;
  statistics.weights = w.size();
  statistics.exceptions = w.size() - window.covered;
  statistics.matrices = 1;
  statistics.raw16_matrices = forecast.choice.encoding == Encoding::raw16 ? 1 : 0;
  statistics.packed_bytes = forecast.total_bytes;
  statistics.window_low = window.base;
  statistics.window_high = window.base;
  place_relative(statistics.histogram, window.base, statistics.relative);
  return statistics;
}

ExponentStatistics measure(const PackedMatrix& packed, std::vector<std::uint16_t>& scratch) {
  scratch.resize(static_cast<std::size_t>(packed.n()) * static_cast<std::size_t>(packed.k()));
  unpack(packed, scratch);
  ExponentStatistics statistics;
  statistics.histogram = count_exponents(scratch, 0);
  statistics.weights = scratch.size();
  statistics.matrices = 1;
  statistics.packed_bytes = packed.bytes().size();
  const Window window = best_window(statistics.histogram);
  const bool is_raw = packed.encoding() == Encoding::raw16;
  const int base = is_raw ? window.base : packed.window_base();
  statistics.raw16_matrices = is_raw ? 1 : 0;
  statistics.exceptions = is_raw ? scratch.size() - window.covered
                                 : static_cast<std::uint64_t>(packed.exception_count());
  statistics.window_low = base;
  statistics.window_high = base;
  place_relative(statistics.histogram, base, statistics.relative);
  return statistics;
}

}  // namespace slimgemm::inspect
