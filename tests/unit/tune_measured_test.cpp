// SPDX-License-Identifier: Apache-2.0
// Today's cost model against what an H200 measured: results/h200/tune.json, as `slimgemm tune
// --json` wrote it. For every shape its choice must be close to the best.
#include "tune/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

namespace slimgemm::tune {
namespace {

constexpr double event_tick_us = 0.032;  // device events come in steps of this, both medians too
constexpr const char* path = SLIMGEMM_SOURCE_DIR "/results/h200/tune.json";

TEST(CostModel, IsWithin10PercentOfTheBestMeasured) {
  if (!json_available()) GTEST_SKIP() << "this build has no nlohmann-json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    GTEST_SKIP() << "there is no results/h200/tune.json: on an H200, write it with slimgemm tune "
                    "--json results/h200/tune.json";
  }
  std::ostringstream text;
  text << file.rdbuf();
  const MeasuredFile measured = parse_json(text.str(), "results/h200/tune.json");
  EXPECT_FALSE(measured.shapes.empty());
  for (const MeasuredShape& shape : measured.shapes) {
    const std::string where = shape.layer + " m=" + std::to_string(shape.problem.m);
    if (shape.instances.empty()) {
      ADD_FAILURE() << where << ": no instance has a time";
      continue;
    }
    const std::string choice =
        plan::instance_name(plan::plan_by_model(shape.problem, measured.gpu).instance);
    const auto chosen =
        std::find_if(shape.instances.begin(), shape.instances.end(),
                     [&](const Measured& instance) { return instance.instance == choice; });
    if (chosen == shape.instances.end()) {
      ADD_FAILURE() << where << ": the cost model chooses " << choice
                    << ", which has no time in the file; measure again with slimgemm tune";
      continue;
    }
    const Measured& best = shape.instances.front();
    EXPECT_LE(chosen->median_us, model_tolerance * best.median_us + 2 * event_tick_us)
        << where << ": the cost model chooses " << choice << "; best is " << best.instance;
  }
}

}  // namespace
}  // namespace slimgemm::tune
