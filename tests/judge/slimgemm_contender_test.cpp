// SPDX-License-Identifier: Apache-2.0
// SlimGEMM itself under the judge, on the CPU: the real layers at small m, the slice among them.
#include "judge/contender.hpp"
#include "judge/report.hpp"
#include "judge/run.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace slimgemm::judge {
namespace {

TEST(SlimgemmContender, IsSoundOnAllLayers) {
  RunOptions options;
  options.repeats = 4;
  options.empty_repeats = 1;
  options.ceiling_repeats = 1;
  options.problem.cases = {
      {Layer::qkv_gate, 1, true},  {Layer::o, 1, true},         {Layer::pooler, 1, true},
      {Layer::unpooler, 1, true},  {Layer::router, 1, true},    {Layer::qkv_gate, 5, false},
      {Layer::unpooler, 7, false}, {Layer::unpooler, 9, false}, {Layer::router, 9, false}};
  const auto executor = make_cpu_executor(0, 1 << 20);
  const auto contender = make_slimgemm_contender(-1);
  const RunResult result = run_judge(
      *executor, *contender, {}, generate_weights(options.problem.layers, options.seed), options);
  EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
  for (const CaseResult& c : result.cases) {
    EXPECT_TRUE(c.contender.bit_identical) << c.shape.name;
    EXPECT_FALSE(c.kernel.empty()) << c.shape.name;
    // 12 bits and at most 2 % of exceptions and padding; the router's FP32 as it is.
    const double dense = static_cast<double>(c.shape.n * c.shape.k * size_bytes(c.shape.dtype));
    const double share = static_cast<double>(c.weight_bytes) / dense;
    EXPECT_NEAR(share, c.shape.dtype == DType::f32 ? 1.0 : 0.75, 0.02) << c.shape.name;
  }
}

}  // namespace
}  // namespace slimgemm::judge
