// SPDX-License-Identifier: Apache-2.0
// Bits: one nonzero power of two in x must give back every weight, whatever it is.
#include "unit/cpu_test_support.hpp"

#include "cpu/x_range.hpp"

#include <limits>

namespace slimgemm::test {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

// Row r holds the patterns 256 r to 256 r + 255: all 65,536. Only rows 127 and 255 have Inf and
// NaN.
Matrix all_patterns() {
  Matrix matrix{256, 256, std::vector<float>(65536)};
  for (std::size_t i = 0; i < matrix.values.size(); ++i) {
    matrix.values[i] = bf16_to_float(static_cast<std::uint16_t>(i));
  }
  return matrix;
}

// Token t has 2^exponent(t) at column (first + t) and zeros elsewhere.
Activations probes(std::int64_t m, std::int64_t k, std::int64_t first, int exponent_min,
                   int exponent_max) {
  Activations x(m, k, k, 0);
  for (std::int64_t t = 0; t < m; ++t) {
    std::fill_n(x.row(t), k, std::uint16_t{0});
    const int span = exponent_max - exponent_min + 1;
    const int exponent = exponent_min + static_cast<int>((first + t) % span);
    x.row(t)[first + t] = float_to_bf16(std::ldexp(1.0F, exponent));
  }
  return x;
}

void expect_weights_back(const Linear& linear, const Matrix& matrix, std::int64_t first,
                         const Activations& x) {
  const std::vector<float> out = run_guarded(linear, x);
  for (std::int64_t t = 0; t < x.m; ++t) {
    const float scale = bf16_to_float(x.row(t)[first + t]);
    for (std::int64_t row = 0; row < matrix.n; ++row) {
      const float value = out[static_cast<std::size_t>(t * matrix.n + row)];
      const float* const weights = matrix.values.data() + row * matrix.k;
      if (std::any_of(weights, weights + matrix.k, [](float w) { return !std::isfinite(w); })) {
        ASSERT_TRUE(std::isnan(value)) << "token " << t << ", row " << row;  // 0 * Inf, 0 * NaN
        continue;
      }
      const float product = scale * matrix.at(row, first + t);
      const float expected =
          linear.out_dtype() == DType::bf16 ? bf16_to_float(float_to_bf16(product)) : product;
      ASSERT_EQ(value, expected) << "token " << t << ", row " << row << ", weight "
                                 << matrix.at(row, first + t) << " * " << scale;
    }
  }
}

class CpuExact : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, CpuExact, testing::ValuesIn(target_names()),
                         [](const auto& info) { return info.param; });

TEST_P(CpuExact, EveryPatternComesBack) {
  const Matrix matrix = all_patterns();
  for (const Encoding encoding : {Encoding::split12, Encoding::raw16}) {
    SCOPED_TRACE(name(encoding));
    const Linear linear = make_linear(pack_as(matrix, encoding), GetParam());
    // All columns at once; powers that make no product subnormal, and others.
    expect_weights_back(linear, matrix, 0, probes(256, 256, 0, 0, 6));
    expect_weights_back(linear, matrix, 0, probes(256, 256, 0, -6, 6));
    // A few tokens at a time: the kernels that keep weights in registers.
    for (const std::int64_t m : {1, 2, 3, 8}) {
      for (std::int64_t first = 0; first + m <= 256; first += 21) {
        expect_weights_back(linear, matrix, first, probes(m, 256, first, 0, 6));
      }
    }
  }
}

TEST_P(CpuExact, EveryWindowPosition) {
  for (int base = 0; base <= 238; base += 14) {
    // Weights that fill the window, and a few subnormals beside it.
    Matrix matrix{20, 96, std::vector<float>(20 * 96)};
    for (std::size_t i = 0; i < matrix.values.size(); ++i) {
      const std::size_t exponent =
          std::max<std::size_t>(1, static_cast<std::size_t>(base) + i % 16);
      const std::size_t bits = i % 3 << 15 | exponent << 7 | (i * 37 & 0x7F);
      matrix.values[i] = bf16_to_float(static_cast<std::uint16_t>(i % 101 == 0 ? i % 128 : bits));
    }
    const PackedMatrix packed = pack_as(matrix, Encoding::split12);
    SCOPED_TRACE("window " + std::to_string(packed.window_base()));
    const Linear linear = make_linear(packed, GetParam());
    expect_weights_back(linear, matrix, 0, probes(96, 96, 0, 0, 0));
    expect_weights_back(linear, matrix, 5, probes(1, 96, 5, 0, 0));
  }
}

TEST_P(CpuExact, Fp32WeightsComeBack) {
  Matrix matrix{48, 200, std::vector<float>(48 * 200)};
  std::mt19937 random(21);
  for (float& value : matrix.values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    } while (!std::isfinite(value) || std::abs(value) > 0x1p100F);
  }
  matrix.values[7] = std::numeric_limits<float>::denorm_min();
  const Linear linear = make_linear(pack_as(matrix, Encoding::raw32), GetParam());
  expect_weights_back(linear, matrix, 0, probes(200, 200, 0, 0, 6));
  expect_weights_back(linear, matrix, 7, probes(1, 200, 7, 0, 6));
}

TEST_P(CpuExact, InfinityAndNanReachOnlyTheirRow) {
  Matrix matrix = random_bf16(40, 150, 0.0, 22);
  matrix.values[3 * 150 + 70] = infinity;
  matrix.values[20 * 150 + 70] = nan;
  for (const Encoding encoding : {Encoding::split12, Encoding::raw16}) {
    const Linear linear = make_linear(pack_as(matrix, encoding), GetParam());
    for (const std::int64_t m : {1, 3, 6, 30}) {
      Activations x = random_x(m, 150, 150, 0, 23);
      for (std::int64_t t = 0; t < m; ++t) {
        const float at_infinity = t % 3 == 0 ? 2.0F : t % 3 == 1 ? -2.0F : 0.0F;
        x.row(t)[70] = float_to_bf16(at_infinity);
      }
      const std::vector<float> out = run_guarded(linear, x);
      for (std::int64_t t = 0; t < m; ++t) {
        const float* const row = out.data() + t * matrix.n;
        if (t % 3 == 2) {
          EXPECT_TRUE(std::isnan(row[3])) << "0 * Inf, token " << t;
        } else {
          EXPECT_EQ(row[3], t % 3 == 0 ? infinity : -infinity) << "token " << t;
        }
        for (std::int64_t r = 0; r < matrix.n; ++r) {
          EXPECT_EQ(std::isnan(row[r]), r == 20 || (r == 3 && t % 3 == 2)) << t << ", " << r;
        }
      }
    }
  }
}

TEST_P(CpuExact, StrangeActivationsFollowIeee) {
  // 2^100, a subnormal and 1 as weights, in rows of their own.
  Matrix matrix{3, 80, std::vector<float>(240, 0.25F)};
  matrix.values[10] = 0x1p100F;
  matrix.values[80 + 10] = bf16_to_float(0x0003);
  const Linear linear = make_linear(pack_as(matrix, Encoding::split12), GetParam());
  const float values[] = {0x1p-130F, -0x1p-126F, 0x1p120F, infinity, -infinity, nan};
  for (const std::int64_t m : {1, 7}) {
    for (const float value : values) {
      Activations x(m, 80, 80, 0);
      std::fill_n(x.row(0), m * 80, std::uint16_t{0});
      x.row(m - 1)[10] = float_to_bf16(value);
      const std::vector<float> out = run_guarded(linear, x);
      for (std::int64_t row = 0; row < 3; ++row) {
        const float expected =
            bf16_to_float(float_to_bf16(matrix.at(row, 10) * bf16_to_float(float_to_bf16(value))));
        const float result = out[static_cast<std::size_t>((m - 1) * 3 + row)];
        if (std::isnan(expected)) {
          EXPECT_TRUE(std::isnan(result)) << value << ", row " << row;
        } else {
          EXPECT_EQ(result, expected) << value << ", row " << row;
        }
      }
    }
  }
}

TEST(CpuDotRange, TellsWhereProductsAreExact) {
  const auto exact = [](const std::vector<float>& values, int weight_exponent) {
    std::vector<std::uint16_t> bits(values.size());
    std::transform(values.begin(), values.end(), bits.begin(), float_to_bf16);
    return cpu::dot_is_exact(bits.data(), 1, static_cast<std::int64_t>(bits.size()),
                             static_cast<std::int64_t>(bits.size()), weight_exponent);
  };
  EXPECT_TRUE(exact({0.0F, -0.0F}, 1));
  EXPECT_TRUE(exact({1.0F, 0.0F, -3.0F}, 1));
  EXPECT_FALSE(exact({1.0F, 0.5F}, 1));  // 0.5 * 2^-126
  EXPECT_TRUE(exact({1.0F, 0.5F}, 2));
  EXPECT_FALSE(exact({0x1p-127F}, 254));
  EXPECT_FALSE(exact({1.0F, infinity}, 100));
  EXPECT_FALSE(exact({nan, 1.0F}, 100));
}

}  // namespace
}  // namespace slimgemm::test
