// SPDX-License-Identifier: Apache-2.0
// Today's cost model against what an H200 measured: results/h200/tune.json, as `slimgemm tune
// --json` wrote it. For every shape its choice must be close to the best.
#include "tune/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace slimgemm::tune {
namespace {

constexpr double event_tick_us = 0.032;  // device events come in steps of this, both medians too

/// What was measured, or nothing: then the test is skipped, with the reason.
std::optional<MeasuredFile> read_measured(const std::string& name) {
  if (!json_available()) return std::nullopt;
  std::ifstream file(SLIMGEMM_SOURCE_DIR "/" + name, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return parse_json(text.str(), name);
}

/// The instance that today's cost model chooses for a shape; end() if it has no time.
std::vector<Measured>::const_iterator chosen_by_model(const MeasuredShape& shape,
                                                      const plan::GpuFacts& gpu) {
  const std::string choice = plan::instance_name(plan::plan_by_model(shape.problem, gpu).instance);
  return std::find_if(shape.instances.begin(), shape.instances.end(),
                      [&](const Measured& instance) { return instance.instance == choice; });
}

std::string where_of(const MeasuredShape& shape) {
  return shape.layer + " m=" + std::to_string(shape.problem.m);
}

TEST(CostModel, IsWithin10PercentOfTheBestMeasured) {
  const auto measured = read_measured("results/h200/tune.json");
  if (!measured) {
    GTEST_SKIP() << "this build has no nlohmann-json, or there is no results/h200/tune.json: on an "
                    "H200, write it with slimgemm tune --json results/h200/tune.json";
  }
  EXPECT_FALSE(measured->shapes.empty());
  for (const MeasuredShape& shape : measured->shapes) {
    const auto chosen = chosen_by_model(shape, measured->gpu);
    if (chosen == shape.instances.end()) {
      ADD_FAILURE() << where_of(shape) << ": the cost model's choice has no time in the file; "
                    << "measure again with slimgemm tune";
      continue;
    }
    const Measured& best = shape.instances.front();
    EXPECT_LE(chosen->median_us, model_tolerance * best.median_us + 2 * event_tick_us)
        << where_of(shape) << ": the cost model chooses " << chosen->instance << "; best is "
        << best.instance;
  }
}

// The figures that docs/tuning.md states.
TEST(CostModel, ChoosesWellForServedShapes) {
  const auto measured = read_measured("results/h200/tune-served.json");
  if (!measured) {
    GTEST_SKIP() << "this build has no nlohmann-json, or there is no results/h200/tune-served.json:"
                    " on an H200, write it with slimgemm tune --shapes shapes/served.json --json "
                    "results/h200/tune-served.json";
  }
  std::size_t good = 0;
  double worst = 1;
  for (const MeasuredShape& shape : measured->shapes) {
    const auto chosen = chosen_by_model(shape, measured->gpu);
    ASSERT_NE(chosen, shape.instances.end()) << where_of(shape);
    const double ratio = chosen->median_us / shape.instances.front().median_us;
    if (ratio <= model_tolerance) ++good;
    worst = std::max(worst, ratio);
  }
  EXPECT_EQ(measured->shapes.size(), 473U);
  EXPECT_GE(good, 466U);
  EXPECT_LE(worst, 1.19);
}

}  // namespace
}  // namespace slimgemm::tune
