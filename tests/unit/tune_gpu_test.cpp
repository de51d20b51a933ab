// SPDX-License-Identifier: Apache-2.0
// The search of `slimgemm tune` on a GPU, and the plan that follows from it.
#include "plan/tuning_table.hpp"
#include "tune/layers.hpp"
#include "tune/table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace slimgemm::tune {
namespace {

std::ptrdiff_t can_serve(const plan::Problem& problem, const plan::GpuFacts& gpu) {
  const auto instances = plan::instances_of(problem.encoding);
  return std::count_if(instances.begin(), instances.end(), [&](const plan::Instance& instance) {
    return std::isfinite(plan::estimate_us(instance, problem, gpu));
  });
}

/// Two token counts in every encoding, in a few rounds.
Result quick_search(std::optional<double> exception_share = std::nullopt) {
  Machine machine = make_cuda_machine(exception_share);
  std::vector<Job> jobs;
  for (const Encoding encoding : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    add_job(jobs, plain_layer(512, 2048, encoding), name(encoding), {1, 48});
  }
  Options options;
  options.screening_rounds = 3;
  options.final_rounds = 5;
  return search(machine, jobs, options);
}

TEST(TuneOnGpu, TimesEveryInstanceAndTheTableIsFollowed) {
  if (judge::cuda_device_count() == 0) GTEST_SKIP() << "no usable GPU";
  const Result result = quick_search();
  EXPECT_FALSE(result.has_failures());
  ASSERT_EQ(result.shapes.size(), 6U);
  for (const ShapeResult& shape : result.shapes) {
    EXPECT_EQ(static_cast<std::ptrdiff_t>(shape.attempts.size()),
              can_serve(shape.problem, result.gpu));
    EXPECT_TRUE(shape.problem.x_aligned);
    for (const Attempt& attempt : shape.attempts) {
      EXPECT_EQ(attempt.failure, "") << plan::instance_name(attempt.instance);
      EXPECT_GT(attempt.median_us(), 0.1) << plan::instance_name(attempt.instance);
    }
    EXPECT_GT(shape.empty_us, 0.5);
    EXPECT_GE(shape.model_ratio().value(), 1.0);
  }
  const std::string text = table_text(merge({}, tuned_plans(result, "a test")));
  const plan::TuningText read = plan::read_tuning_table(text, "table");
  ASSERT_TRUE(read.errors.empty()) << read.errors[0];
  const plan::TuningTable table(read.entries);
  for (const ShapeResult& shape : result.shapes) {
    EXPECT_EQ(plan::plan_kernel(shape.problem, result.gpu, table).instance, shape.best()->instance);
  }
}

TEST(TuneOnGpu, RunsWithoutExceptions) {
  if (judge::cuda_device_count() == 0) GTEST_SKIP() << "no usable GPU";
  EXPECT_FALSE(quick_search(0.0).has_failures());
}

}  // namespace
}  // namespace slimgemm::tune
