// SPDX-License-Identifier: Apache-2.0
#include "judge/cases.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <utility>

namespace slimgemm::judge {
namespace {

TEST(Cases, ThirtyScoredThenNineExtra) {
  const auto cases = all_cases();
  ASSERT_EQ(cases.size(), 39U);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(cases[i].scored, i < 30) << i;
  std::set<std::pair<Layer, std::int64_t>> distinct;
  for (const Case& c : cases) distinct.insert({c.layer, c.m});
  EXPECT_EQ(distinct.size(), 39U);
}

TEST(Cases, LayerTableIsIndexedByLayer) {
  for (int i = 0; i < layer_count; ++i) {
    EXPECT_EQ(static_cast<int>(layers()[static_cast<std::size_t>(i)].layer), i);
  }
  EXPECT_EQ(info(Layer::router).dtype, DType::f32);
  EXPECT_EQ(info(Layer::o).k, 1024);
}

TEST(Cases, UnpoolerIsASliceUpToEightRows) {
  EXPECT_EQ((Case{Layer::unpooler, 1, true}.n()), 1024);
  EXPECT_EQ((Case{Layer::unpooler, 8, true}.n()), 1024);
  EXPECT_EQ((Case{Layer::unpooler, 9, false}.n()), 8192);
  EXPECT_EQ((Case{Layer::o, 1, true}.n()), 8192);
}

TEST(Cases, FloorsOfTheLoadsAreThePublishedOnes) {
  const double expected[] = {28.85, 41.42, 41.78, 28.99, 43.90, 51.67};
  const auto cases = all_cases();
  for (std::size_t load = 0; load < loads().size(); ++load) {
    double sum = 0;
    for (const Case& c : cases) {
      if (c.scored && c.m == loads()[load].m) sum += floor_us(c);
    }
    EXPECT_NEAR(std::round(sum * 100) / 100, expected[load], 1e-9) << loads()[load].name;
  }
}

TEST(Cases, PoolerAtOneTokenReadsItsWeights) {
  const Case c{Layer::pooler, 1, true};
  EXPECT_DOUBLE_EQ(case_bytes(c), 4096.0 * 8192 * 2 + 8192 * 2 + 4096 * 2);
  EXPECT_DOUBLE_EQ(case_flops(c), 2.0 * 4096 * 8192);
  EXPECT_NEAR(floor_us(c), 13.99, 0.005);
}

TEST(Cases, ManyTokensAreBoundByArithmetic) {
  const Case c{Layer::unpooler, 1000, false};
  EXPECT_DOUBLE_EQ(floor_us(c), case_flops(c) / 989e6);
}

}  // namespace
}  // namespace slimgemm::judge
