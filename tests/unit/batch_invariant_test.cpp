// SPDX-License-Identifier: Apache-2.0
// LinearOptions::batch_invariant: plans with one k order for all m, and equal bits on the CPU.
#include "plan/kernel_plan.hpp"
#include "unit/cpu_test_support.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::test {
namespace {

using plan::Family;
using plan::GpuFacts;
using plan::Instance;
using plan::Problem;

std::string k_order_of(const Instance& instance) {
  if (instance.family == Family::stream) return plan::instance_name(instance);
  const plan::TileConfig& c = instance.tile();
  return "tile g" + std::to_string(c.k_groups) + " c" + std::to_string(c.cluster);
}

TEST(BatchInvariantPlan, KeepsOneOrderForAllTokenCounts) {
  const GpuFacts h200;
  for (const Encoding encoding : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    for (const std::int64_t n : {16, 256, 2304, 8192, 151936}) {
      for (const std::int64_t k : {1, 64, 100, 1024, 4096, 28672}) {
        for (const bool aligned : {true, false}) {
          Problem problem{.rows = n, .k = k, .m = 1, .encoding = encoding, .x_aligned = aligned};
          const Instance order = plan::choose_k_order(problem, h200);
          for (std::int64_t m = 1; m <= 300; m += m < 20 ? 1 : 7) {
            problem.m = m;
            const plan::KernelPlan chosen = plan::plan_in_k_order(order, problem, h200);
            ASSERT_EQ(k_order_of(chosen.instance), k_order_of(order))
                << n << " x " << k << " m=" << m << " in " << name(encoding);
          }
        }
      }
    }
  }
}

TEST(BatchInvariantPlan, SaysSo) {
  const Problem problem{.rows = 8192, .k = 4096, .m = 128};
  const plan::KernelPlan chosen =
      plan::plan_in_k_order(plan::choose_k_order(problem, {}), problem, {});
  EXPECT_NE(chosen.reason.find("batch invariant: for all m the k order is k groups "),
            std::string::npos)
      << chosen.reason;
}

class CpuBatchInvariant : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, CpuBatchInvariant, testing::ValuesIn(target_names()),
                         [](const auto& info) { return info.param; });

/// The values of `linear` for the first m tokens.
std::vector<float> run(const Linear& linear, const Activations& x, std::int64_t m) {
  const auto count = static_cast<std::size_t>(m * linear.n());
  std::vector<float> values(count);
  if (linear.out_dtype() == DType::f32) {
    linear.run(x.row(0), m, values.data(), nullptr, x.stride);
    return values;
  }
  std::vector<std::uint16_t> bits(count);
  linear.run(x.row(0), m, bits.data(), nullptr, x.stride);
  for (std::size_t i = 0; i < count; ++i) values[i] = bf16_to_float(bits[i]);
  return values;
}

TEST_P(CpuBatchInvariant, GivesARowTheSameBitsForEveryTokenCount) {
  constexpr std::int64_t most = 40;
  for (const std::int64_t k : {64, 300, 2048}) {
    for (const Encoding encoding : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
      const Matrix matrix =
          encoding == Encoding::raw32 ? random_f32(48, k, 3) : random_bf16(48, k, 0.01, 4);
      const PackedMatrix packed = pack_as(matrix, encoding);
      const ForcedTarget forced(GetParam());
      const Linear linear(packed, {.batch_invariant = true});
      Activations x = random_x(most, k, k, 0, 5);
      x.row(most - 1)[0] = 0x0001;  // a subnormal in another row must not matter, either
      const std::vector<float> all = run(linear, x, most);
      for (std::int64_t m = 1; m < most; ++m) {
        const std::vector<float> few = run(linear, x, m);
        for (std::size_t i = 0; i < few.size(); ++i) {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(few[i]), std::bit_cast<std::uint32_t>(all[i]))
              << name(encoding) << " k=" << k << " m=" << m << " value " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace slimgemm::test
