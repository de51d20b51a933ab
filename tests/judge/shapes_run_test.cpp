// SPDX-License-Identifier: Apache-2.0
// Runs of a shape file, layer by layer, and runs against several baselines.
#include "judge/case_run.hpp"
#include "judge/report.hpp"
#include "judge/shapes_summary.hpp"
#include "tiny_problem.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

namespace slimgemm::judge::test {
namespace {

LayerInfo layer(int index, const std::string& name, std::int64_t n, std::int64_t k, DType dtype) {
  return {Layer{index}, name, n, k, dtype, "", n, 0};
}

RunOptions shape_options() {
  RunOptions options = tiny_options();
  options.problem = {
      "shapes.json",
      {layer(0, "first", 48, 128, DType::bf16), layer(1, "second", 80, 64, DType::bf16),
       layer(2, "third", 32, 96, DType::f32)},
      {{Layer{0}, 1, true}, {Layer{0}, 4, true}, {Layer{1}, 8, true}, {Layer{2}, 4, true}}};
  return options;
}

// Counts who is alive at the same time, and keeps a part of the weights it was given.
struct Witness {
  int alive = 0;
  int most_alive = 0;
  std::map<std::string, std::vector<float>> first_row;  // by layer name
};

class Watched : public DenseContender {
 public:
  Watched(const Problem& problem, Witness& witness)
      : DenseContender(problem.layers), witness_(witness) {
    witness_.most_alive = std::max(witness_.most_alive, ++witness_.alive);
  }
  ~Watched() override { --witness_.alive; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void prepare(const WeightSet& weights) override {
    EXPECT_EQ(weights.size(), 1U);
    DenseContender::prepare(weights);
    const auto row = weights_[0].begin();
    witness_.first_row[table_[0].name].assign(row, row + table_[0].k);
  }

 private:
  Witness& witness_;
};

RunResult run(const MakeContestants& make, const RunOptions& options = shape_options()) {
  const auto executor = tiny_executor();
  return run_layer_by_layer(*executor, make, options);
}

TEST(ShapesRun, JudgesLayerByLayer) {
  Witness witness;
  const RunResult result = run([&](const Problem& problem) {
    Contestants who;
    who.contender = std::make_unique<Watched>(problem, witness);
    who.baselines.push_back(std::make_unique<DenseContender>(problem.layers));
    return who;
  });
  EXPECT_EQ(witness.most_alive, 1) << "one layer at a time";
  EXPECT_EQ(witness.alive, 0);
  EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
  ASSERT_EQ(result.cases.size(), 4U);
  const std::vector<std::string> names{"first", "first", "second", "third"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    EXPECT_EQ(result.cases[i].shape.name, names[i]);
    EXPECT_EQ(result.cases[i].shape.layer, shape_options().problem.cases[i].layer);
    EXPECT_TRUE(result.cases[i].contender.time.has_value());
    EXPECT_TRUE(result.cases[i].ceiling_us.has_value());
    ASSERT_NE(result.cases[i].against(0), nullptr);
    EXPECT_TRUE(result.cases[i].against(0)->speedup.has_value());
  }
  EXPECT_EQ(result.cases[3].shape.dtype, DType::f32);
  EXPECT_TRUE(result.loads.empty());
  EXPECT_FALSE(result.score.has_value());
  EXPECT_NE(no_score_reason(result).find("shape file"), std::string::npos);
  // Layers have weights of their own.
  EXPECT_NE(witness.first_row["first"][0], witness.first_row["second"][0]);
}

TEST(ShapesRun, ALayersWeightsDoNotDependOnTheOthers) {
  Witness all;
  Witness alone;
  const auto watched_by = [](Witness& witness) {
    return [&witness](const Problem& problem) {
      Contestants who;
      who.contender = std::make_unique<Watched>(problem, witness);
      return who;
    };
  };
  run(watched_by(all));
  RunOptions options = shape_options();
  std::erase_if(options.problem.cases, [](const Case& c) { return c.layer != Layer{1}; });
  const RunResult result = run(watched_by(alone), options);
  ASSERT_EQ(result.cases.size(), 1U);
  EXPECT_EQ(alone.first_row.size(), 1U) << "layers without a case are left out";
  EXPECT_EQ(alone.first_row["second"], all.first_row["second"]);
}

class FailsOnSecond : public DenseContender {
 public:
  using DenseContender::DenseContender;
  void prepare(const WeightSet& weights) override {
    if (table_[0].name == "second") throw Error(ErrorCode::out_of_memory, "no room");
    DenseContender::prepare(weights);
  }
};

TEST(ShapesRun, AFailedPrepareNamesItsLayerAndTheOthersAreJudged) {
  const RunResult result = run([](const Problem& problem) {
    Contestants who;
    who.contender = std::make_unique<FailsOnSecond>(problem.layers);
    return who;
  });
  ASSERT_EQ(result.contender.failures.size(), 1U);
  EXPECT_EQ(result.contender.failures[0].to_string(), "second: prepare failed: no room");
  EXPECT_EQ(result.cases.size(), 3U);
  EXPECT_EQ(result.cases.back().shape.name, "third");
  EXPECT_EQ(verdict(result), Verdict::failed);
}

class WrongThird : public DenseContender {
 public:
  using DenseContender::DenseContender;
  void run(Layer which, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(which, x, m, out, stream);
    if (table_[0].name == "third") store(shape_of(which, m), out, 1, 2, 1e6F);
  }
};

TEST(ShapesRun, CatchesAWrongLayer) {
  const RunResult result = run([](const Problem& problem) {
    Contestants who;
    who.contender = std::make_unique<WrongThird>(problem.layers);
    return who;
  });
  EXPECT_EQ(verdict(result), Verdict::failed);
  for (const CaseResult& c : result.cases) {
    EXPECT_EQ(c.contender.failures.empty(), c.shape.name != "third") << c.shape.name;
  }
  EXPECT_EQ(result.contender_failures().front().layer, "third");
}

TEST(ShapesRun, SlimgemmIsSoundOnSizesOfEveryKind) {
  RunOptions options = shape_options();
  options.problem.layers.push_back(layer(3, "odd", 33, 97, DType::bf16));
  options.problem.cases.push_back({Layer{3}, 5, true});
  const RunResult result = run(
      [](const Problem& problem) {
        Contestants who;
        who.contender = make_slimgemm_contender(-1, 1, problem.layers);
        return who;
      },
      options);
  EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
  EXPECT_EQ(result.cases.size(), 5U);
}

// Dense, but every call takes this much longer: so that speedups are known roughly.
class Slowed : public DenseContender {
 public:
  Slowed(std::string name, int repeats) : name_(std::move(name)), repeats_(repeats) {}
  [[nodiscard]] std::string name() const override { return name_; }
  void run(Layer which, const void* x, std::int64_t m, void* out, void* stream) override {
    for (int i = 0; i < repeats_; ++i) DenseContender::run(which, x, m, out, stream);
  }

 private:
  std::string name_;
  int repeats_;
};

TEST(SeveralBaselines, AreTimedSideBySide) {
  Slowed contender("ours", 1);
  Slowed twice("twice", 20);
  Slowed thrice("thrice", 60);
  RunOptions options = tiny_options();
  options.problem.cases = {{Layer::pooler, 16, true}, {Layer::o, 33, false}};
  const auto executor = tiny_executor();
  const RunResult result = run_judge(*executor, contender, {&twice, &thrice},
                                     generate_weights(options.problem.layers, 3), options);
  EXPECT_EQ(verdict(result), Verdict::passed);
  ASSERT_EQ(result.baselines.size(), 2U);
  EXPECT_EQ(result.baselines[1].name, "thrice");
  const CaseResult& timed = result.cases[0];
  ASSERT_NE(timed.against(0), nullptr);
  ASSERT_NE(timed.against(1), nullptr);
  EXPECT_EQ(timed.against(1)->side.time->count, timed.contender.time->count);
  EXPECT_GT(timed.against(0)->speedup->value, 2);
  EXPECT_GT(timed.against(1)->speedup->value, timed.against(0)->speedup->value);
  EXPECT_EQ(result.cases[1].against(0), nullptr) << "extra shapes have no baseline";
}

class Broken : public DenseContender {
  void prepare(const WeightSet&) override { throw Error(ErrorCode::unsupported, "no"); }
  [[nodiscard]] std::string name() const override { return "broken"; }
};

TEST(SeveralBaselines, OneThatFailsLeavesTheOthers) {
  DenseContender contender;
  Broken broken;
  DenseContender sound;
  RunOptions options = tiny_options();
  options.problem.cases = {{Layer::pooler, 4, true}};
  const auto executor = tiny_executor();
  const RunResult result = run_judge(*executor, contender, {&broken, &sound},
                                     generate_weights(options.problem.layers, 3), options);
  EXPECT_EQ(verdict(result), Verdict::invalid);
  EXPECT_EQ(result.cases[0].against(0), nullptr);
  ASSERT_NE(result.cases[0].against(1), nullptr);
  EXPECT_TRUE(result.cases[0].against(1)->speedup.has_value());
  EXPECT_NE(text_report(result, {}).find("INVALID RUN: baseline broken: prepare failed"),
            std::string::npos);
}

// On every input any two sides go first equally often, and two sides take turns.
TEST(SeveralBaselines, TakeTurns) {
  EXPECT_EQ(turn_order(1, 7), (std::vector<std::size_t>{0}));
  for (int round = 0; round < 8; ++round) {
    EXPECT_EQ(turn_order(2, round).front(), static_cast<std::size_t>(round % 2));
  }
  for (const int inputs : {3, 5}) {
    for (int input = 0; input < inputs; ++input) {
      std::map<std::pair<std::size_t, std::size_t>, int> before;
      const int rounds = 6 * inputs;
      for (int round = input; round < rounds * 2; round += inputs) {
        const auto order = turn_order(3, round);
        EXPECT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), 3U);
        for (std::size_t i = 0; i < 3; ++i) {
          for (std::size_t j = i + 1; j < 3; ++j) ++before[{order[i], order[j]}];
        }
      }
      ASSERT_EQ(before.size(), 6U);
      for (const auto& [sides, count] : before) EXPECT_EQ(count, 6) << inputs << " inputs";
    }
  }
}

}  // namespace
}  // namespace slimgemm::judge::test
