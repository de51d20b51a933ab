// SPDX-License-Identifier: Apache-2.0
#include "inspect/exponents.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <initializer_list>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace slimgemm::inspect {
namespace {

std::uint16_t with_exponent(int exponent) { return static_cast<std::uint16_t>(exponent << 7 | 5); }

std::vector<std::uint16_t> matrix(std::initializer_list<std::pair<int, int>> exponent_counts) {
  std::vector<std::uint16_t> w;
  for (const auto& [exponent, count] : exponent_counts) {
    w.insert(w.end(), static_cast<std::size_t>(count), with_exponent(exponent));
  }
  return w;
}

TEST(Entropy, KnownValues) {
  ExponentHistogram histogram{};
  EXPECT_EQ(entropy_bits(histogram), 0) << "of nothing";
  histogram[120] = 5;
  EXPECT_EQ(entropy_bits(histogram), 0) << "of a single exponent";
  histogram[121] = 5;
  EXPECT_DOUBLE_EQ(entropy_bits(histogram), 1);
  histogram[122] = 5;
  histogram[3] = 5;
  EXPECT_DOUBLE_EQ(entropy_bits(histogram), 2);
  histogram = {};
  histogram[118] = 4;  // 1/2, 1/4, 1/8, 1/8: 1/2 + 2/4 + 3/8 + 3/8
  histogram[119] = 2;
  histogram[120] = 1;
  histogram[121] = 1;
  EXPECT_DOUBLE_EQ(entropy_bits(histogram), 1.75);
}

// 32 x 64: 2 tiles of 1536 bytes from byte 256 on, 2 groups of 128 bytes, 3 numbers of 4 bytes.
TEST(Exponents, SizeOfASmallMatrixByHand) {
  const std::vector<std::uint16_t> w = matrix({{120, 1024}, {121, 512}, {122, 256}, {123, 256}});
  const ExponentStatistics e = measure(w, 32, 64);
  EXPECT_EQ(e.packed_bytes, 256U + 2 * 1536 + 2 * 128 + 3 * 4);
  EXPECT_DOUBLE_EQ(e.stored_bits(), 8 * 3596.0 / 2048);
  EXPECT_DOUBLE_EQ(e.entropy(), 1.75);
  EXPECT_DOUBLE_EQ(e.ideal_bits(), 9.75);
  EXPECT_EQ(e.exceptions, 0U);
  EXPECT_EQ(e.window_low, 120) << "of the windows that cover all, the one with the largest base";
  EXPECT_EQ(e.histogram[121], 512U);
  EXPECT_EQ(e.relative[relative_zero + 1], 512U);
}

TEST(Exponents, ExceptionsAndSpecialValues) {
  std::vector<std::uint16_t> w = matrix({{110, 20000}, {125, 20000}, {109, 7}, {126, 2}});
  w.push_back(0x0000);  // zero
  w.push_back(0x8001);  // negative, subnormal
  w.push_back(0x7F80);  // infinity
  w.resize(40016, with_exponent(112));
  const ExponentStatistics e = measure(w, 61, 656);
  EXPECT_EQ(e.weights, 40016U);
  EXPECT_EQ(e.window_low, 110);
  EXPECT_EQ(e.exceptions, 7U + 2 + 2 + 1);
  EXPECT_EQ(e.zeros(), 2U);
  EXPECT_EQ(e.nonfinite(), 1U);
  EXPECT_EQ(e.raw16_matrices, 0U) << "12 of 40016 are fewer than 0.1 %";
  EXPECT_EQ(e.relative[relative_zero - 1], 7U);
  EXPECT_EQ(e.relative[relative_zero + 16], 2U);
  const auto relative = std::accumulate(e.relative.begin(), e.relative.end(), std::uint64_t{0});
  EXPECT_EQ(relative, e.weights - 3) << "all but zeros, subnormals and infinities";
}

TEST(Exponents, ManyExceptionsStayAt16Bits) {
  const std::vector<std::uint16_t> w = matrix({{100, 2048}, {140, 2048}});
  const ExponentStatistics e = measure(w, 64, 64);
  EXPECT_EQ(e.raw16_matrices, 1U);
  EXPECT_EQ(e.exceptions, 2048U) << "of the best window";
  EXPECT_EQ(e.packed_bytes, 256U + 4 * 2048);
}

// Counts of any weights, by a loop of the test's own; the packed matrix says the same.
TEST(Exponents, ExactAndTheSameWhenPacked) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<std::uint16_t> w(333 * 517);
  ExponentHistogram counted{};
  for (std::uint16_t& bits : w) {
    const auto value = std::bit_cast<std::uint32_t>(normal(random));
    bits = static_cast<std::uint16_t>(value >> 16);
    ++counted[bits / 128 % 256];
  }
  const ExponentStatistics plain = measure(w, 333, 517);
  EXPECT_EQ(plain.histogram, counted);
  const PackedMatrix packed = pack(std::span<const std::uint16_t>(w), 333, 517);
  std::vector<std::uint16_t> scratch;
  const ExponentStatistics back = measure(packed, scratch);
  EXPECT_EQ(back.histogram, counted);
  EXPECT_EQ(back.relative, plain.relative);
  EXPECT_EQ(back.exceptions, plain.exceptions);
  EXPECT_EQ(back.packed_bytes, plain.packed_bytes);
  EXPECT_EQ(back.raw16_matrices, plain.raw16_matrices);
}

TEST(Exponents, SumsOverMatrices) {
  ExponentStatistics sum = measure(matrix({{120, 4096}}), 64, 64);
  sum.add(measure(matrix({{90, 4096}}), 64, 64));
  EXPECT_EQ(sum.weights, 8192U);
  EXPECT_EQ(sum.matrices, 2U);
  EXPECT_EQ(sum.window_low, 90);
  EXPECT_EQ(sum.window_high, 120);
  EXPECT_EQ(sum.relative[relative_zero], 8192U) << "each counted from its own window";
  EXPECT_DOUBLE_EQ(sum.entropy(), 1);
}

}  // namespace
}  // namespace slimgemm::inspect
