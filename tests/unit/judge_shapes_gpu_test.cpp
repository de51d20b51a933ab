// SPDX-License-Identifier: Apache-2.0
// A small shape file's run on a GPU: SlimGEMM and both cuBLAS baselines on layers that are not the
// fixed problem's.
#include "judge/report.hpp"
#include "judge/run.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <memory>

namespace slimgemm::judge {
namespace {

RunOptions small_options() {
  RunOptions options;
  options.problem = {"small.json",
                     {{Layer{0}, "wide", 1536, 512, DType::bf16, "", 1536, 0},
                      {Layer{1}, "deep", 256, 4096, DType::bf16, "", 256, 0},
                      {Layer{2}, "scores", 64, 1024, DType::f32, "", 64, 0}},
                     {{Layer{0}, 1, true},
                      {Layer{0}, 32, true},
                      {Layer{1}, 4, true},
                      {Layer{2}, 1, true},
                      {Layer{2}, 16, true}}};
  options.repeats = 6;
  options.ceiling_repeats = 3;
  return options;
}

TEST(JudgeShapesOnGpu, AllSidesServeAnyLayers) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no usable GPU";
  const auto executor = make_cuda_executor(0);
  const MakeContestants make = [](const Problem& problem) {
    Contestants who;
    who.contender = make_slimgemm_contender(0, 0, problem.layers);
    who.baselines.push_back(make_sglang_baseline(0, problem));
    who.baselines.push_back(make_best_blas_baseline(0, problem));
    return who;
  };
  try {
    make(fixed_problem());
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    GTEST_SKIP() << error.what();
  }
  const RunResult result = run_layer_by_layer(*executor, make, small_options());
  EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
  ASSERT_EQ(result.cases.size(), 5U);
  ASSERT_EQ(result.baselines.size(), 2U);
  EXPECT_EQ(result.baselines[0].name, "sglang");
  EXPECT_EQ(result.baselines[1].name, "best-blas");
  for (const CaseResult& c : result.cases) {
    EXPECT_FALSE(c.kernel.empty()) << c.shape.name;
    for (std::size_t i = 0; i < 2; ++i) {
      ASSERT_NE(c.against(i), nullptr) << c.shape.name << " m=" << c.shape.m;
      EXPECT_TRUE(c.against(i)->speedup.has_value()) << c.shape.name << " m=" << c.shape.m;
    }
  }
}

}  // namespace
}  // namespace slimgemm::judge
