// SPDX-License-Identifier: Apache-2.0
#include "judge/inputs.hpp"

#include "judge/host_reference.hpp"
#include "support/bf16.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace slimgemm::judge {
namespace {

LayerTable small_layers() {
  LayerTable table = layers();
  for (LayerInfo& layer : table) {
    layer.n = 96;
    layer.k = 512;
    layer.slice_n = 32;
  }
  return table;
}

TEST(Bf16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.0F + 0x1p-8F), 0x3F80);            // tie, to even
  EXPECT_EQ(float_to_bf16(1.0F + 0x1p-7F + 0x1p-8F), 0x3F82);  // tie, to even
  EXPECT_EQ(float_to_bf16(1.0F + 0x1p-8F + 0x1p-20F), 0x3F81);
  EXPECT_EQ(float_to_bf16(-0.0F), 0x8000);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(bf16_to_float(float_to_bf16(std::numeric_limits<float>::max()))));
}

TEST(Inputs, WeightsAreNormalWithTheStatedSigma) {
  const Weights weights = generate_weights(small_layers(), 5);
  for (const auto& matrix : weights.matrices) {
    double sum = 0;
    double squares = 0;
    const std::size_t count = matrix.bf16.size() + matrix.f32.size();
    ASSERT_EQ(count, 96U * 512U);
    for (const std::uint16_t bits : matrix.bf16) {
      sum += bf16_to_float(bits);
      squares += std::pow(bf16_to_float(bits), 2);
    }
    for (const float value : matrix.f32) {
      sum += value;
      squares += std::pow(value, 2);
    }
    EXPECT_NEAR(sum / static_cast<double>(count), 0, 5e-4);
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), weight_sigma, 2e-4);
  }
  EXPECT_NE(weights.matrices[0].bf16, weights.matrices[1].bf16);
}

TEST(Inputs, TheSeedDecidesAndTheThreadsDoNot) {
  const Weights one = generate_weights(small_layers(), 5, 1);
  const Weights many = generate_weights(small_layers(), 5, 7);
  const Weights other = generate_weights(small_layers(), 6, 1);
  for (std::size_t i = 0; i < one.matrices.size(); ++i) {
    EXPECT_EQ(one.matrices[i].bf16, many.matrices[i].bf16);
    EXPECT_EQ(one.matrices[i].f32, many.matrices[i].f32);
  }
  EXPECT_NE(one.matrices[0].bf16, other.matrices[0].bf16);
  EXPECT_EQ(make_input(130, 777, 5, Layer::o, 2, 1).x, make_input(130, 777, 5, Layer::o, 2, 5).x);
}

TEST(Inputs, EveryInputIsAnother) {
  std::set<std::vector<std::uint16_t>> distinct;
  for (const Layer layer : {Layer::o, Layer::router}) {
    for (int index = 0; index < 3; ++index) {
      distinct.insert(make_input(16, 64, 1, layer, index).x);
      distinct.insert(make_input(16, 64, 2, layer, index).x);
    }
  }
  EXPECT_EQ(distinct.size(), 12U);
}

TEST(Inputs, AboutOneRowInEightIsAProbe) {
  for (const std::int64_t m : {2, 5, 8, 16, 33, 130, 256, 1000}) {
    const Input input = make_input(m, 96, 9, Layer::pooler, 0);
    const auto probes = std::count(input.probe.begin(), input.probe.end(), 1);
    EXPECT_EQ(probes, std::max<std::int64_t>(1, (m + 4) / 8)) << m;
  }
}

TEST(Inputs, OneTokenAlternatesBetweenDenseAndProbe) {
  int dense = 0;
  int probe = 0;
  for (int index = 0; index < input_count(1); ++index) {
    (make_input(1, 64, 1, Layer::o, index).probe[0] != 0 ? probe : dense)++;
  }
  EXPECT_GE(dense, 2);
  EXPECT_GE(probe, 2);
}

TEST(Inputs, AProbeRowHasOnePowerOfTwo) {
  std::set<std::int64_t> columns;
  std::set<float> powers;
  for (int index = 0; index < 40; ++index) {
    const Input input = make_input(16, 200, 4, Layer::qkv_gate, index);
    for (std::int64_t row = 0; row < 16; ++row) {
      const auto begin = input.x.begin() + row * 200;
      const auto zeros = std::count(begin, begin + 200, 0);
      if (input.probe[static_cast<std::size_t>(row)] == 0) {
        EXPECT_LT(zeros, 3);
        continue;
      }
      EXPECT_EQ(zeros, 199);
      const auto nonzero = std::find_if(begin, begin + 200, [](auto bits) { return bits != 0; });
      columns.insert(nonzero - begin);
      const float value = bf16_to_float(*nonzero);
      powers.insert(value);
      int exponent = 0;
      EXPECT_EQ(std::frexp(value, &exponent), 0.5F) << value;
      EXPECT_GE(exponent - 1, probe_exponent_min);
      EXPECT_LE(exponent - 1, probe_exponent_max);
    }
  }
  EXPECT_GT(columns.size(), 40U) << "80 draws from 200 columns";
  EXPECT_EQ(powers.size(), 13U);
}

TEST(HostReference, BothWaysGiveTheSameSums) {
  const LayerTable table = small_layers();
  const Weights weights = generate_weights(table, 11);
  for (const Layer layer : {Layer::o, Layer::router}) {
    const auto& matrix = weights.matrices[static_cast<std::size_t>(layer)];
    const DType dtype = info(layer).dtype;
    const Input input = make_input(9, 512, 1, layer, 0);
    const auto fast = host_reference(input.x.data(), matrix.data(), dtype, 9, 96, 512, 2);
    const auto loop = host_reference_loop(input.x.data(), matrix.data(), dtype, 9, 96, 512, 2);
    ASSERT_EQ(fast.size(), 9U * 96U);
    for (std::size_t i = 0; i < fast.size(); ++i) EXPECT_NEAR(fast[i], loop[i], 1e-12);
    double direct = 0;  // row 8, column 95, summed as written
    for (std::size_t k = 0; k < 512; ++k) {
      const double w = dtype == DType::f32 ? static_cast<double>(matrix.f32[95 * 512 + k])
                                           : bf16_to_float(matrix.bf16[95 * 512 + k]);
      direct += w * bf16_to_float(input.x[8 * 512 + k]);
    }
    EXPECT_NEAR(loop[8 * 96 + 95], direct, 1e-12);
  }
}

}  // namespace
}  // namespace slimgemm::judge
