// SPDX-License-Identifier: Apache-2.0
#include "inspect/fp16_statistics.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace slimgemm::inspect {
namespace {

constexpr std::uint16_t fp16_one = 0x3C00;
constexpr std::uint16_t fp16_odd = 0x3C01;  // 1 + 2^-10: no BF16 number

TEST(Fp16Statistics, FiguresByHand) {
  std::vector<std::uint16_t> weights(std::size_t{128} * 128, fp16_one);
  Fp16Counter packs;
  std::vector<std::uint16_t> copy = weights;
  packs.add(copy, 128, 128);
  const Fp16Statistics sound = packs.statistics(true);
  EXPECT_EQ(sound.exponent_entropy(), 0);
  EXPECT_EQ(sound.ideal_bits(), 1);
  EXPECT_EQ(sound.bf16_share(), 1);
  EXPECT_EQ(sound.packing_tensors, 1U);
  EXPECT_LT(sound.fp16_option_bits(), 13.5);
  EXPECT_EQ(packs.statistics(false).fp16_option_bits(), 16);

  for (std::size_t i = 0; i < weights.size(); i += 2) weights[i] = fp16_odd;
  Fp16Counter keeps;
  keeps.add(weights, 128, 128);
  Fp16Statistics odd = keeps.statistics(true);
  EXPECT_EQ(odd.mantissa_entropy(), 1);
  EXPECT_EQ(odd.bf16_share(), 0.5);
  EXPECT_EQ(odd.packing_tensors, 0U);
  EXPECT_EQ(odd.fp16_option_bits(), 16);
  odd.add(sound);
  EXPECT_EQ(odd.tensors, 2U);
  EXPECT_EQ(odd.bf16_share(), 0.75);
}

}  // namespace
}  // namespace slimgemm::inspect
