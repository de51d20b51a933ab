// SPDX-License-Identifier: Apache-2.0
// The arithmetic of the judge's figures. Pure functions: numbers in, numbers out.
#pragma once

#include <cstddef>
#include <span>

namespace slimgemm::judge {

/// Linear interpolation between order statistics: q = 0 the smallest, 0.5 the median, 1 the
/// largest. Errors: invalid_argument if there are no values or q is not in [0, 1].
double quantile(std::span<const double> values, double q);
double median(std::span<const double> values);

struct Spread {
  std::size_t count = 0;
  double median = 0;
  double quartile_low = 0;   ///< 25 %
  double quartile_high = 0;  ///< 75 %
};
Spread spread(std::span<const double> values);

/// A value with its confidence interval.
struct Interval {
  double value = 0;
  double low = 0;
  double high = 0;
  double coverage = 0;  ///< probability that the interval of the order statistics holds the median
};

/// No reported interval is narrower than this on either side, relative to the value: replays of one
/// run agree better with each other than two runs do.
inline constexpr double interval_min_relative = 0.015;
inline constexpr double interval_coverage = 0.95;

/// The median with the distribution-free interval between two order statistics: the narrowest
/// symmetric pair that covers the median with at least 95 %. Fewer than six values cannot; they get
/// their whole range, and `coverage` says how little that is. Widened to interval_min_relative.
Interval median_interval(std::span<const double> values);

/// Median of baseline[i] / ours[i], taken pair by pair. Errors: invalid_argument if the sizes
/// differ, are 0, or a time is not positive.
Interval paired_speedup(std::span<const double> ours, std::span<const double> baseline);

/// Errors: invalid_argument if there are no values or one is not positive.
double geometric_mean(std::span<const double> values);

}  // namespace slimgemm::judge
