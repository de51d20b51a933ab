// SPDX-License-Identifier: Apache-2.0
#include "judge/statistics.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace slimgemm::judge {
namespace {

std::vector<double> sorted(std::span<const double> values) {
  if (values.empty()) {
    throw Error(ErrorCode::invalid_argument, "statistics of no values: at least one is needed");
  }
  std::vector<double> copy(values.begin(), values.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

double quantile_of_sorted(const std::vector<double>& values, double q) {
  const double position = q * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  const double share = position - static_cast<double>(below);
  return values[below] + share * (values[above] - values[below]);
}

/// P(X <= k) for X ~ Binomial(n, 1/2), summed in logarithms so that a large n does not underflow.
double binomial_half_cdf(std::size_t n, std::size_t k) {
  const auto trials = static_cast<double>(n);
  double sum = 0;
  for (std::size_t i = 0; i <= k; ++i) {
    const auto hits = static_cast<double>(i);
    sum += std::exp(std::lgamma(trials + 1) - std::lgamma(hits + 1) -
                    std::lgamma(trials - hits + 1) - trials * std::log(2.0));
  }
  return sum;
}

void require_positive(std::span<const double> values, const char* what) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0) || !std::isfinite(values[i])) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} {} is {}: it must be a positive number", what, i, values[i]));
    }
  }
}

}  // namespace

double quantile(std::span<const double> values, double q) {
  if (!(q >= 0 && q <= 1)) {
    throw Error(ErrorCode::invalid_argument, fmt::format("quantile {} is not in [0, 1]", q));
  }
  return quantile_of_sorted(sorted(values), q);
}

double median(std::span<const double> values) { return quantile(values, 0.5); }

Spread spread(std::span<const double> values) {
  const auto ordered = sorted(values);
  return {ordered.size(), quantile_of_sorted(ordered, 0.5), quantile_of_sorted(ordered, 0.25),
          quantile_of_sorted(ordered, 0.75)};
}

Interval median_interval(std::span<const double> values) {
  const auto ordered = sorted(values);
  const std::size_t n = ordered.size();
  // The r-th smallest and r-th largest value hold the median with 1 - 2 P(X <= r - 1).
  std::size_t rank = 1;
  double coverage = std::max(0.0, 1 - 2 * binomial_half_cdf(n, 0));
  while (2 * (rank + 1) <= n) {
    const double next = 1 - 2 * binomial_half_cdf(n, rank);
    if (next < interval_coverage) break;
    coverage = next;
    ++rank;
  }
  Interval result;
  result.value = quantile_of_sorted(ordered, 0.5);
  const double margin = std::abs(result.value) * interval_min_relative;
  result.low = std::min(ordered[rank - 1], result.value - margin);
  result.high = std::max(ordered[n - rank], result.value + margin);
  result.coverage = coverage;
  return result;
}

Interval paired_speedup(std::span<const double> ours, std::span<const double> baseline) {
  if (ours.size() != baseline.size()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("paired times: {} of ours, {} of the baseline; the counts must be equal",
                    ours.size(), baseline.size()));
  }
  require_positive(ours, "our time");
  require_positive(baseline, "baseline time");
  std::vector<double> ratios(ours.size());
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = baseline[i] / ours[i];
  return median_interval(ratios);
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) {
    throw Error(ErrorCode::invalid_argument, "geometric mean of no values");
  }
  require_positive(values, "value");
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace slimgemm::judge
