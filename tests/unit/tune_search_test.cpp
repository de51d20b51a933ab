// SPDX-License-Identifier: Apache-2.0
// The search of `slimgemm tune` on a machine whose times the test sets.
#include "tune/layers.hpp"
#include "tune/report.hpp"
#include "tune_test_support.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace slimgemm::tune {
namespace {

const plan::Problem shape{.rows = 256, .k = 512, .m = 16};

Job job_of(const plan::Problem& problem) {
  std::vector<Job> jobs;
  add_job(jobs, plain_layer(problem.rows, problem.k, problem.encoding), name(problem.encoding),
          {problem.m});
  return jobs.at(0);
}

std::vector<std::string> instances_that_can(const plan::Problem& problem) {
  std::vector<std::string> names;
  for (const plan::Instance& instance : plan::instances_of(problem.encoding)) {
    if (std::isfinite(plan::estimate_us(instance, problem, {}))) {
      names.push_back(plan::instance_name(instance));
    }
  }
  return names;
}

std::string model_name(const plan::Problem& problem) {
  return plan::instance_name(plan::plan_by_model(problem, {}).instance);
}

/// An instance that the cost model does not choose.
std::string other_name(const plan::Problem& problem) {
  for (const std::string& name : instances_that_can(problem)) {
    if (name != model_name(problem)) return name;
  }
  return "";
}

const Attempt& attempt_of(const ShapeResult& result, const std::string& instance) {
  return *std::find_if(result.attempts.begin(), result.attempts.end(), [&](const Attempt& a) {
    return plan::instance_name(a.instance) == instance;
  });
}

class Search : public testing::Test {
 protected:
  ShapeResult run(FakeTime time, const std::string& fails_to_run = "") {
    Machine machine = fake_machine(log_, std::move(time), fails_to_run);
    Result result = search(machine, {job_of(shape)}, options_);
    EXPECT_EQ(result.shapes.size(), 1U);
    return result.shapes.at(0);
  }
  [[nodiscard]] std::size_t replays_of(const std::string& instance) const {
    return static_cast<std::size_t>(
        std::count(log_->replayed.begin(), log_->replayed.end(), instance));
  }

  std::shared_ptr<FakeLog> log_ = std::make_shared<FakeLog>();
  Options options_{.screening_rounds = 5, .final_rounds = 20};
};

TEST_F(Search, TimesEveryInstanceThatCanServe) {
  const ShapeResult result = run(by_estimate(shape));
  EXPECT_EQ(log_->recorded, instances_that_can(shape));
  EXPECT_EQ(result.attempts.size(), log_->recorded.size());
  EXPECT_EQ(result.layer, "256x512");
  EXPECT_EQ(result.empty_us, fake_empty_us);
  for (const Attempt& attempt : result.attempts) {
    ASSERT_TRUE(attempt.time);
    EXPECT_NEAR(attempt.median_us(), attempt.estimated_us, 1e-9) << "the empty replay is taken off";
  }
  EXPECT_TRUE(std::is_sorted(
      result.attempts.begin(), result.attempts.end(),
      [](const Attempt& a, const Attempt& b) { return a.median_us() < b.median_us(); }));
  EXPECT_EQ(result.best()->instance, result.model_choice);
  EXPECT_EQ(result.model_ratio().value(), 1.0);
}

TEST_F(Search, FindsAnInstanceTheModelDoesNotChoose) {
  const std::string other = other_name(shape);
  const double model_us = plan::plan_by_model(shape, {}).estimated_us;
  const ShapeResult result = run(by_estimate(shape, {{other, model_us / 2}}));
  EXPECT_EQ(plan::instance_name(result.best()->instance), other);
  EXPECT_EQ(plan::instance_name(result.model_choice), model_name(shape));
  EXPECT_NEAR(result.model_ratio().value(), 2.0, 1e-9);
  EXPECT_EQ(replays_of(model_name(shape)), 25U) << "the model's choice is always a finalist";
}

TEST_F(Search, OnlyFinalistsAreReplayedMore) {
  const std::vector<std::string> names = instances_that_can(shape);
  const ShapeResult result = run([&](const std::string& instance) {
    return 10.0 +
           static_cast<double>(std::find(names.begin(), names.end(), instance) - names.begin());
  });
  ASSERT_GE(names.size(), 4U);
  for (const Attempt& attempt : result.attempts) {
    const std::string name = plan::instance_name(attempt.instance);
    const bool near = attempt.median_us() <= 12.5 || name == model_name(shape);
    EXPECT_EQ(attempt.finalist, near) << name;
    EXPECT_EQ(attempt.time->count, near ? 20U : 5U) << name;
    EXPECT_EQ(replays_of(name), near ? 25U : 5U) << name;
  }
}

TEST_F(Search, RoundsGoForthAndBack) {
  run(by_estimate(shape));
  const std::size_t count = log_->recorded.size();
  std::vector<std::string> round = log_->recorded;
  for (int i = 0; i < options_.screening_rounds; ++i) {
    const auto begin = log_->replayed.begin() + static_cast<std::ptrdiff_t>(count) * i;
    EXPECT_EQ(std::vector(begin, begin + static_cast<std::ptrdiff_t>(count)), round);
    std::reverse(round.begin(), round.end());
  }
}

// The machine slows down by half in the course of the measurement, which is far more than the two
// fastest instances differ by. One after the other, the wrong one would win.
TEST_F(Search, ADriftHitsAllAlike) {
  const std::vector<std::string> names = instances_that_can(shape);
  ASSERT_GE(names.size(), 3U);
  double drift = 1;
  const ShapeResult result = run([&](const std::string& instance) {
    drift += 0.5 / (25.0 * static_cast<double>(names.size()));
    return drift * (instance == names.back() ? 9.8 : instance == names.front() ? 10.0 : 11.5);
  });
  EXPECT_EQ(plan::instance_name(result.attempts[0].instance), names.back());
  EXPECT_EQ(plan::instance_name(result.attempts[1].instance), names.front());
}

TEST_F(Search, OneSlowReplayIsNoMatter) {
  int replays = 0;
  const std::string best = model_name(shape);
  const FakeTime times = by_estimate(shape);
  const ShapeResult result = run([&](const std::string& instance) {
    return times(instance) * (instance == best && ++replays % 7 == 0 ? 100 : 1);
  });
  EXPECT_EQ(plan::instance_name(result.best()->instance), best);
}

TEST_F(Search, AFailureIsKeptAndTheSearchGoesOn) {
  const std::string other = other_name(shape);
  const ShapeResult result = run(by_estimate(shape), other);
  EXPECT_EQ(attempt_of(result, other).failure, "no such kernel");
  EXPECT_FALSE(attempt_of(result, other).time);
  EXPECT_EQ(plan::instance_name(result.attempts.back().instance), other);
  EXPECT_EQ(replays_of(other), 0U);
  EXPECT_EQ(plan::instance_name(result.best()->instance), model_name(shape));
  EXPECT_TRUE((Result{{}, {result}}.has_failures()));
}

TEST_F(Search, AFailingReplayTakesTheInstanceOut) {
  const std::string best = model_name(shape);
  const FakeTime times = by_estimate(shape);
  const ShapeResult result = run([&](const std::string& instance) {
    if (instance == best && replays_of(best) > 8) throw Error(ErrorCode::device_error, "lost");
    return times(instance);
  });
  EXPECT_EQ(attempt_of(result, best).failure, "lost");
  EXPECT_FALSE(attempt_of(result, best).time) << "some good rounds are no measurement";
  EXPECT_NE(plan::instance_name(result.best()->instance), best);
  EXPECT_FALSE(result.model_ratio());
}

TEST_F(Search, NothingIsBestWhereAllFails) {
  const ShapeResult result =
      run([](const std::string&) -> double { throw Error(ErrorCode::device_error, "no device"); });
  EXPECT_EQ(result.best(), nullptr);
  EXPECT_FALSE(result.model_ratio());
  EXPECT_EQ(result.attempts.size(), instances_that_can(shape).size());
}

TEST_F(Search, CallsAreThoseOfTheShape) {
  run(by_estimate(shape));
  for (const RunArgs& args : log_->calls) {
    EXPECT_EQ(args.m, 16);
    EXPECT_EQ(args.x_row_stride, 512);
    EXPECT_EQ(args.row_begin, 0);
    EXPECT_EQ(args.row_end, 256);
    EXPECT_NE(args.x, nullptr);
    EXPECT_NE(args.out, nullptr);
  }
  for (const judge::Preparation& preparation : log_->preparations) {
    EXPECT_NE(preparation.x, nullptr);
    EXPECT_NE(preparation.x_source, nullptr);
    EXPECT_EQ(preparation.x_bytes, 16U * 512 * 2);
  }
  for (const std::size_t bytes : log_->out_bytes) EXPECT_EQ(bytes, 16U * 256 * 2);
}

TEST(SearchJobs, TheSliceIsAShapeOfItsOwn) {
  const auto log = std::make_shared<FakeLog>();
  Machine machine = fake_machine(log, [](const std::string&) { return 10.0; });
  std::vector<Job> jobs;
  judge::LayerInfo layer = plain_layer(64, 512, Encoding::split12);
  layer.slice_n = 16;
  layer.slice_max_m = 8;
  add_job(jobs, layer, "", {8, 9, 1});
  add_job(jobs, plain_layer(32, 256, Encoding::raw32), "", {2});
  std::vector<double> done;
  std::vector<std::string> found;
  Options options{.screening_rounds = 1, .final_rounds = 1};
  options.progress = [&](const std::string&, double share) { done.push_back(share); };
  options.found = [&](const ShapeResult& result) { found.push_back(result.layer); };
  const Result result = search(machine, jobs, options);
  ASSERT_EQ(result.shapes.size(), 4U);
  EXPECT_EQ(result.shapes[0].problem.rows, 16);
  EXPECT_EQ(result.shapes[1].problem.rows, 16);
  EXPECT_EQ(result.shapes[2].problem.rows, 64);
  EXPECT_EQ(result.shapes[3].problem.encoding, Encoding::raw32);
  EXPECT_EQ(log->out_bytes.back(), 2U * 32 * 4) << "FP32 weights give an FP32 result";
  EXPECT_EQ(found, (std::vector<std::string>{"64x512", "64x512", "64x512", "32x256"}));
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.front(), 0);
  EXPECT_EQ(done.back(), 0.75);
}

TEST(SearchJobs, LayersOfOneSizeAreTimedOnce) {
  std::vector<Job> jobs;
  add_job(jobs, plain_layer(64, 512, Encoding::split12), "", {16, 1, 16});
  add_job(jobs, plain_layer(64, 512, Encoding::split12), "", {2, 1});
  add_job(jobs, plain_layer(64, 512, Encoding::split12), "raw16", {4});
  add_job(jobs, plain_layer(64, 512, Encoding::raw32), "", {4});
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].tokens, (std::vector<std::int64_t>{1, 2, 16}));
  EXPECT_EQ(jobs[1].encoding, Encoding::raw16);
  EXPECT_EQ(jobs[2].encoding, Encoding::raw32);
}

}  // namespace
}  // namespace slimgemm::tune
