// SPDX-License-Identifier: Apache-2.0
// The judge passes a sound contender and catches each kind of unsound one, by name.
#include "judge/report.hpp"
#include "tiny_problem.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <thread>
#include <utility>

namespace slimgemm::judge::test {
namespace {

// Layers and m of the judge's own list; the matrices are small.
const std::vector<Case>& few_cases() {
  static const std::vector<Case> cases = {{Layer::qkv_gate, 1, true}, {Layer::o, 16, true},
                                          {Layer::unpooler, 8, true}, {Layer::unpooler, 9, false},
                                          {Layer::router, 32, true},  {Layer::router, 9, false}};
  return cases;
}

RunResult judge(Contender& contender, Contender* baseline = nullptr, double prepare_limit_s = 300) {
  RunOptions options = tiny_options();
  options.problem.cases = few_cases();
  options.prepare_limit_s = prepare_limit_s;
  const auto executor = tiny_executor();
  const std::vector<Contender*> baselines(baseline == nullptr ? 0 : 1, baseline);
  return run_judge(*executor, contender, baselines, generate_weights(options.problem.layers, 3),
                   options);
}

std::vector<const Failure*> failures_of(const std::vector<Failure>& all, FailureKind kind) {
  std::vector<const Failure*> found;
  for (const Failure& failure : all) {
    if (failure.kind == kind) found.push_back(&failure);
  }
  return found;
}

TEST(Judge, PassesASoundContender) {
  DenseContender contender;
  DenseContender baseline;
  const RunResult result = judge(contender, &baseline);
  EXPECT_EQ(verdict(result), Verdict::passed);
  ASSERT_EQ(result.cases.size(), few_cases().size());
  for (const CaseResult& c : result.cases) {
    EXPECT_GE(c.contender.inputs_checked, 3) << c.shape.name;
    EXPECT_GT(c.contender.replays_checked, c.contender.inputs_checked);
    EXPECT_TRUE(c.contender.bit_identical);
    EXPECT_EQ(c.contender.time.has_value(), c.shape.scored);
    EXPECT_EQ(c.against(0) != nullptr && c.against(0)->speedup, c.shape.scored);
    EXPECT_LT(c.contender.errors.l2, c.shape.dtype == DType::f32 ? 1e-6 : 4e-3);
    EXPECT_GT(c.contender.errors.l2, 0);
    EXPECT_EQ(c.contender.errors.probe, 0) << "a probe row is exact in BF16";
  }
  EXPECT_EQ(result.cases[0].contender.inputs_checked, 5) << "dense and probe rows at m = 1";
  EXPECT_FALSE(result.score.has_value());
}

TEST(Judge, ScoresACompleteRun) {
  DenseContender contender;
  DenseContender baseline;
  RunOptions options = tiny_options();
  std::erase_if(options.problem.cases, [](const Case& c) { return !c.scored; });
  options.repeats = 6;
  const auto executor = tiny_executor();
  const RunResult result = run_judge(*executor, contender, {&baseline},
                                     generate_weights(options.problem.layers, 3), options);
  ASSERT_EQ(result.loads.size(), 6U);
  ASSERT_TRUE(result.score.has_value()) << no_score_reason(result);
  std::vector<double> speedups;
  for (const LoadResult& load : result.loads) speedups.push_back(load.against(0)->speedup);
  EXPECT_DOUBLE_EQ(*result.score, geometric_mean(speedups));
  EXPECT_GT(*result.score, 0.3);
  EXPECT_LT(*result.score, 3.0);
}

class WrongRow : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    if (layer != Layer::router || m != 32) return;
    const Shape shape = shape_of(layer, m);
    auto* row = static_cast<float*>(out) + 29 * shape.n;
    for (std::int64_t j = 0; j < shape.n; ++j) row[j] *= 1.001F;
  }
};

TEST(Judge, CatchesOneWrongRow) {
  WrongRow contender;
  const RunResult result = judge(contender);
  EXPECT_EQ(verdict(result), Verdict::failed);
  const auto all = result.contender_failures();
  const auto rows = failures_of(all, FailureKind::row_error);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]->layer, "router");
  EXPECT_EQ(rows[0]->m, 32);
  EXPECT_EQ(rows[0]->row, 29);
  EXPECT_NEAR(rows[0]->measured, 0.001, 1e-5);
}

class SkipsAnElement : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    const Shape shape = shape_of(layer, m);
    const std::int64_t index = (m / 2) * shape.n + 7;
    const auto bytes = static_cast<std::size_t>(size_bytes(shape.dtype));
    unsigned char before[4];
    void* element = static_cast<unsigned char*>(out) + static_cast<std::size_t>(index) * bytes;
    std::memcpy(before, element, bytes);
    DenseContender::run(layer, x, m, out, stream);
    std::memcpy(element, before, bytes);
  }
};

TEST(Judge, CatchesASkippedElement) {
  SkipsAnElement contender;
  const auto all = judge(contender).contender_failures();
  const auto skipped = failures_of(all, FailureKind::unwritten);
  ASSERT_EQ(skipped.size(), few_cases().size());
  EXPECT_EQ(skipped[1]->layer, "o");
  EXPECT_EQ(skipped[1]->row, 8);
  EXPECT_EQ(skipped[1]->column, 7);
  EXPECT_EQ(skipped[1]->count, 1);
}

// Keeps the first x it sees of a shape.
class CachesX : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void*) override {
    auto& kept = kept_[{layer, m}];
    const auto* tokens = static_cast<const std::uint16_t*>(x);
    if (kept.empty()) kept.assign(tokens, tokens + m * shape_of(layer, m).k);
    multiply(layer, kept.data(), m, out);
  }
  std::map<std::pair<Layer, std::int64_t>, std::vector<std::uint16_t>> kept_;
};

TEST(Judge, CatchesACachedX) {
  CachesX contender;
  const RunResult result = judge(contender);
  for (const CaseResult& c : result.cases) {
    EXPECT_FALSE(c.contender.failures.empty()) << c.shape.name << " m=" << c.shape.m;
  }
}

// Answers with the x of the call before.
class ReadsStaleX : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void*) override {
    const auto* tokens = static_cast<const std::uint16_t*>(x);
    std::vector<std::uint16_t> now(tokens, tokens + m * shape_of(layer, m).k);
    auto& before = before_[{layer, m}];
    multiply(layer, before.empty() ? now.data() : before.data(), m, out);
    before = std::move(now);
  }
  std::map<std::pair<Layer, std::int64_t>, std::vector<std::uint16_t>> before_;
};

TEST(Judge, CatchesAStaleX) {
  ReadsStaleX contender;
  const RunResult result = judge(contender);
  for (const CaseResult& c : result.cases) {
    EXPECT_FALSE(c.contender.failures.empty()) << c.shape.name << " m=" << c.shape.m;
  }
}

// Rounds every BF16 weight to 8 - dropped mantissa bits.
class RoundsWeights : public DenseContender {
 public:
  explicit RoundsWeights(int dropped) : dropped_(dropped) {}
  void prepare(const WeightSet& weights) override {
    DenseContender::prepare(weights);
    for (std::size_t i = 0; i + 1 < weights_.size(); ++i) {
      for (float& w : weights_[i]) {
        const unsigned half = 1U << (15 + dropped_);
        const unsigned mask = ~((1U << (16 + dropped_)) - 1);
        w = std::bit_cast<float>((std::bit_cast<std::uint32_t>(w) + half) & mask);
      }
    }
  }

 private:
  int dropped_;
};

TEST(Judge, CatchesWeightsRoundedTo11Bits) {
  RoundsWeights contender(5);
  const auto all = judge(contender).contender_failures();
  EXPECT_EQ(failures_of(all, FailureKind::probe_error).size(), 4U);
  EXPECT_FALSE(failures_of(all, FailureKind::l2_error).empty());
}

TEST(Judge, CatchesWeightsRoundedByOneBit) {
  RoundsWeights contender(1);
  const auto all = judge(contender).contender_failures();
  EXPECT_EQ(failures_of(all, FailureKind::probe_error).size(), 4U);
  EXPECT_TRUE(failures_of(all, FailureKind::l2_error).empty()) << "only the probe rows see it";
}

// Keeps a window of eight exponents, 11 bits a weight, and moves what lies below up to its edge.
class NarrowWindow : public DenseContender {
  void prepare(const WeightSet& weights) override {
    DenseContender::prepare(weights);
    for (std::size_t i = 0; i + 1 < weights_.size(); ++i) {
      for (float& w : weights_[i]) {
        const float edge = std::ldexp(0.0625F, -7);
        if (std::abs(w) < edge) w = std::copysign(edge, w);
      }
    }
  }
};

TEST(Judge, CatchesAWindowThatIsTooNarrow) {
  NarrowWindow contender;
  const auto all = judge(contender).contender_failures();
  EXPECT_FALSE(failures_of(all, FailureKind::probe_error).empty());
}

class WritesOutside : public DenseContender {
 public:
  explicit WritesOutside(std::int64_t offset_bytes, bool from_end)
      : offset_bytes_(offset_bytes), from_end_(from_end) {}
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    auto* place = static_cast<unsigned char*>(out) + offset_bytes_;
    if (from_end_) place += output_bytes(shape_of(layer, m));
    *place = 0;
  }

 private:
  std::int64_t offset_bytes_;
  bool from_end_;
};

TEST(Judge, CatchesWritesOutsideTheOutput) {
  const std::pair<std::int64_t, bool> places[] = {
      {-1, false}, {-4096, false}, {0, true}, {4095, true}};
  for (const auto& [offset, from_end] : places) {
    WritesOutside contender(offset, from_end);
    const auto all = judge(contender).contender_failures();
    EXPECT_EQ(failures_of(all, FailureKind::guard_zone).size(), few_cases().size()) << offset;
    EXPECT_EQ(all.size(), few_cases().size()) << "nothing else is wrong";
  }
}

class GivesNan : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    const float bad = layer == Layer::o ? std::numeric_limits<float>::infinity()
                                        : std::numeric_limits<float>::quiet_NaN();
    store(shape_of(layer, m), out, 0, 3, bad);
  }
};

TEST(Judge, CatchesNanAndInf) {
  GivesNan contender;
  const auto all = judge(contender).contender_failures();
  const auto bad = failures_of(all, FailureKind::not_finite);
  ASSERT_EQ(bad.size(), few_cases().size());
  EXPECT_TRUE(std::isnan(bad[0]->got));
  EXPECT_TRUE(std::isinf(bad[1]->got));
  EXPECT_EQ(bad[0]->column, 3);
}

class ReadsPastX : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    const Shape shape = shape_of(layer, m);
    const float beyond = bf16_to_float(static_cast<const std::uint16_t*>(x)[m * shape.k]);
    store(shape, out, m - 1, 0, beyond * 0);
  }
};

TEST(Judge, CatchesAReadPastTheEndOfX) {
  ReadsPastX contender;
  EXPECT_EQ(verdict(judge(contender)), Verdict::failed);
}

class FailsAt : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    if (layer == Layer::o) throw Error(ErrorCode::device_error, "out of luck");
    DenseContender::run(layer, x, m, out, stream);
  }
};

TEST(Judge, NamesAFailedCallAndGoesOn) {
  FailsAt contender;
  const RunResult result = judge(contender);
  const auto all = result.contender_failures();
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].kind, FailureKind::call_failed);
  EXPECT_EQ(all[0].to_string(), "o m=16: call failed: out of luck");
  EXPECT_TRUE(result.cases.back().contender.failures.empty());
  EXPECT_EQ(result.cases.back().contender.inputs_checked, 3);
}

class SlowToPrepare : public DenseContender {
  void prepare(const WeightSet& weights) override {
    DenseContender::prepare(weights);
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  }
};

TEST(Judge, NamesAPrepareThatTakesTooLong) {
  SlowToPrepare contender;
  const RunResult result = judge(contender, nullptr, 0.05);
  ASSERT_EQ(result.contender.failures.size(), 1U);
  EXPECT_EQ(result.contender.failures[0].kind, FailureKind::prepare_time);
  EXPECT_GE(result.contender.failures[0].measured, 0.06);
  EXPECT_EQ(result.cases.size(), few_cases().size()) << "the rest is still checked";
  EXPECT_EQ(verdict(result), Verdict::failed);
}

class CannotPrepare : public DenseContender {
  void prepare(const WeightSet&) override { throw Error(ErrorCode::unsupported, "no such unit"); }
};

TEST(Judge, AFailedPrepareEndsTheRun) {
  CannotPrepare contender;
  const RunResult result = judge(contender);
  EXPECT_TRUE(result.cases.empty());
  ASSERT_EQ(result.contender.failures.size(), 1U);
  EXPECT_EQ(result.contender.failures[0].to_string(), "prepare failed: no such unit");
  EXPECT_EQ(verdict(result), Verdict::failed);
}

TEST(Judge, AWrongBaselineMakesTheRunInvalid) {
  DenseContender contender;
  RoundsWeights baseline(5);
  const RunResult result = judge(contender, &baseline);
  EXPECT_TRUE(result.contender_failures().empty());
  EXPECT_FALSE(result.baseline_failures().empty());
  EXPECT_EQ(verdict(result), Verdict::invalid);
  CannotPrepare broken;
  EXPECT_EQ(verdict(judge(contender, &broken)), Verdict::invalid);
}

// Right within the rules, but never twice the same.
class Wavering : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    if (shape_of(layer, m).dtype == DType::f32 && ++calls_ % 2 == 0) {
      static_cast<float*>(out)[0] *= 1.00001F;
    }
  }
  int calls_ = 0;
};

TEST(Judge, TellsOfReplaysThatDiffer) {
  Wavering contender;
  const RunResult result = judge(contender);
  EXPECT_EQ(verdict(result), Verdict::passed);
  for (const CaseResult& c : result.cases) {
    EXPECT_EQ(c.contender.bit_identical, c.shape.dtype == DType::bf16) << c.shape.name;
  }
}

// Right for so long that every input has been compared once, then wrong.
class WrongLater : public DenseContender {
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    DenseContender::run(layer, x, m, out, stream);
    if (++calls_[{layer, m}] > 5) store(shape_of(layer, m), out, 0, 0, 1e6F);
  }
  std::map<std::pair<Layer, std::int64_t>, int> calls_;
};

TEST(Judge, ChecksEveryTimedReplay) {
  WrongLater contender;
  const RunResult result = judge(contender);
  for (const CaseResult& c : result.cases) {
    // The extra shapes end before.
    EXPECT_EQ(c.contender.failures.empty(), !c.shape.scored) << c.shape.name;
  }
}

}  // namespace
}  // namespace slimgemm::judge::test
