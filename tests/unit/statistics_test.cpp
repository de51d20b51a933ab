// SPDX-License-Identifier: Apache-2.0
#include "judge/statistics.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace slimgemm::judge {
namespace {

TEST(Statistics, MedianOfOddEvenAndUnsorted) {
  EXPECT_DOUBLE_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
  EXPECT_DOUBLE_EQ(median(std::vector<double>{7}), 7);
  EXPECT_THROW(median(std::vector<double>{}), Error);
}

TEST(Statistics, QuantilesInterpolate) {
  const std::vector<double> values{5, 1, 4, 2, 3};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 5);
  EXPECT_DOUBLE_EQ(quantile(values, 0.25), 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 4.6);
  EXPECT_THROW(quantile(values, 1.5), Error);
  const Spread s = spread(values);
  EXPECT_EQ(s.count, 5U);
  EXPECT_DOUBLE_EQ(s.quartile_low, 2);
  EXPECT_DOUBLE_EQ(s.quartile_high, 4);
}

// Ranks of the order statistics that hold the median with 95 %, as in any table of them.
TEST(Statistics, IntervalRanksFollowTheBinomial) {
  const struct {
    int n;
    int low_rank;
  } table[] = {{6, 1}, {8, 1}, {9, 2}, {10, 2}, {12, 3}, {15, 4}, {20, 6}, {30, 10}, {100, 40}};
  for (const auto& row : table) {
    std::vector<double> values;
    for (int i = 1; i <= row.n; ++i) values.push_back(i);
    const Interval interval = median_interval(values);
    EXPECT_DOUBLE_EQ(interval.low, row.low_rank) << row.n;
    EXPECT_DOUBLE_EQ(interval.high, row.n + 1 - row.low_rank) << row.n;
    EXPECT_GE(interval.coverage, 0.95) << row.n;
  }
}

TEST(Statistics, FewValuesSayThatTheyCoverLess) {
  const Interval interval = median_interval(std::vector<double>{1, 2, 3, 4, 5});
  EXPECT_DOUBLE_EQ(interval.low, 1);
  EXPECT_DOUBLE_EQ(interval.high, 5);
  EXPECT_DOUBLE_EQ(interval.coverage, 1 - std::ldexp(1.0, -4));
  EXPECT_DOUBLE_EQ(median_interval(std::vector<double>{2}).coverage, 0);
}

TEST(Statistics, IntervalIsNeverNarrowerThanTheRunToRunScatter) {
  const std::vector<double> same(50, 2.0);
  const Interval interval = median_interval(same);
  EXPECT_DOUBLE_EQ(interval.low, 2.0 * 0.985);
  EXPECT_DOUBLE_EQ(interval.high, 2.0 * 1.015);
}

TEST(Statistics, IntervalCoversTheMedianAsOftenAsItSays) {
  std::mt19937_64 engine(7);
  std::exponential_distribution<double> times(1.0);  // skewed, as times are
  int covered = 0;
  constexpr int trials = 2000;
  for (int trial = 0; trial < trials; ++trial) {
    std::vector<double> values(15);
    for (double& value : values) value = times(engine);
    const Interval interval = median_interval(values);
    covered += interval.low <= std::log(2.0) && std::log(2.0) <= interval.high;
  }
  EXPECT_GE(covered, trials * 0.94);
}

TEST(Statistics, SpeedupIsTheMedianOfPairedRatiosNotTheRatioOfMedians) {
  const std::vector<double> ours{1, 2, 4};
  const std::vector<double> baseline{3, 2, 8};
  EXPECT_DOUBLE_EQ(paired_speedup(ours, baseline).value, 2);  // ratios 3, 1, 2; medians 3 / 2
}

TEST(Statistics, PairsMustMatchAndBePositive) {
  EXPECT_THROW(paired_speedup(std::vector<double>{1, 2}, std::vector<double>{1}), Error);
  EXPECT_THROW(paired_speedup(std::vector<double>{0}, std::vector<double>{1}), Error);
  EXPECT_THROW(paired_speedup(std::vector<double>{1}, std::vector<double>{-1}), Error);
}

TEST(Statistics, GeometricMeanOfThePublishedSpeedups) {
  const std::vector<double> speedups{59.49 / 38.25, 75.94 / 54.03, 76.46 / 63.77,
                                     75.90 / 39.98, 86.34 / 77.91, 100.84 / 94.80};
  EXPECT_NEAR(geometric_mean(speedups), 1.343, 0.0005);
  EXPECT_DOUBLE_EQ(geometric_mean(std::vector<double>{2, 8}), 4);
  EXPECT_THROW(geometric_mean(std::vector<double>{}), Error);
  EXPECT_THROW(geometric_mean(std::vector<double>{1, 0}), Error);
}

}  // namespace
}  // namespace slimgemm::judge
