// SPDX-License-Identifier: Apache-2.0
// What the tests of the CPU backend share: targets, matrices, guarded runs and references.
#pragma once

#include <slimgemm/slimgemm.hpp>

#include "cpu/targets.hpp"
#include "support/bf16.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::test {

/// Forces a target while it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(const std::string& name) {
    const char* const before = std::getenv(cpu::target_variable);
    had_value_ = before != nullptr;
    if (had_value_) before_ = before;
    setenv(cpu::target_variable, name.c_str(), 1);
  }
  ~ForcedTarget() {
    if (had_value_) {
      setenv(cpu::target_variable, before_.c_str(), 1);
    } else {
      unsetenv(cpu::target_variable);
    }
  }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  bool had_value_ = false;
  std::string before_;
};

inline std::vector<std::string> target_names() {
  std::vector<std::string> names;
  for (const cpu::Target& target : cpu::available_targets()) names.emplace_back(target.name);
  return names;
}

inline Linear make_linear(const PackedMatrix& packed, const std::string& target, int threads = 0) {
  const ForcedTarget forced(target);
  return Linear(packed, {.cpu_threads = threads});
}

/// A row-major matrix as it was before packing; BF16 weights as their values.
struct Matrix {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<float> values;
  [[nodiscard]] float at(std::int64_t row, std::int64_t column) const {
    return values[static_cast<std::size_t>(row * k + column)];
  }
};

/// Normal BF16 weights; a share of them becomes zeros, subnormals, tiny and large values. The large
/// ones are not so large that they hide the others' errors.
inline Matrix random_bf16(std::int64_t n, std::int64_t k, double strange_share, unsigned seed) {
  constexpr std::uint16_t strange[] = {0x0000, 0x8000, 0x0001, 0x807F, 0x0080,
                                       0x1234, 0x9FFF, 0x4080, 0xC112};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::uniform_real_distribution<double> uniform;
  Matrix matrix{n, k, std::vector<float>(static_cast<std::size_t>(n * k))};
  for (float& value : matrix.values) {
    value = uniform(random) < strange_share ? bf16_to_float(strange[random() % std::size(strange)])
                                            : bf16_to_float(float_to_bf16(normal(random)));
  }
  return matrix;
}

inline Matrix random_f32(std::int64_t n, std::int64_t k, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  Matrix matrix{n, k, std::vector<float>(static_cast<std::size_t>(n * k))};
  for (float& value : matrix.values) value = normal(random);
  return matrix;
}

/// Packs as `encoding`, whatever the share of exceptions.
inline PackedMatrix pack_as(const Matrix& matrix, Encoding encoding) {
  if (encoding == Encoding::raw32) {
    return pack(std::span<const float>(matrix.values), matrix.n, matrix.k);
  }
  std::vector<std::uint16_t> bits(matrix.values.size());
  // Not by float_to_bf16: that would quiet NaNs.
  std::transform(matrix.values.begin(), matrix.values.end(), bits.begin(), [](float value) {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  });
  PackedMatrix packed = pack(std::span<const std::uint16_t>(bits), matrix.n, matrix.k,
                             {.max_exception_rate = encoding == Encoding::split12 ? 1.0 : 0.0});
  EXPECT_EQ(packed.encoding(), encoding);
  return packed;
}

/// Activations with rows `stride` apart, `offset` elements behind an aligned address. What lies
/// between the rows is NaN.
struct Activations {
  Activations(std::int64_t tokens, std::int64_t width, std::int64_t row_stride, int offset_elements)
      : m(tokens),
        k(width),
        stride(row_stride),
        offset(offset_elements),
        storage(static_cast<std::size_t>(offset + m * stride), 0x7FC1) {}
  [[nodiscard]] std::uint16_t* row(std::int64_t token) {
    return storage.data() + offset + token * stride;
  }
  [[nodiscard]] const std::uint16_t* row(std::int64_t token) const {
    return storage.data() + offset + token * stride;
  }
  std::int64_t m;
  std::int64_t k;
  std::int64_t stride;
  int offset;
  std::vector<std::uint16_t> storage;
};

inline Activations random_x(std::int64_t m, std::int64_t k, std::int64_t stride, int offset,
                            unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Activations x(m, k, stride, offset);
  for (std::int64_t t = 0; t < m; ++t) {
    for (std::int64_t i = 0; i < k; ++i) x.row(t)[i] = float_to_bf16(normal(random));
  }
  return x;
}

/// Runs into a poisoned buffer between guard zones, checks the zones and returns the raw results:
/// BF16 words widened to FP32, or FP32.
inline std::vector<float> run_guarded(const Linear& linear, const Activations& x) {
  constexpr std::size_t guard = 192;
  const auto element = static_cast<std::size_t>(size_bytes(linear.out_dtype()));
  const auto count = static_cast<std::size_t>(x.m * linear.n());
  std::vector<unsigned char> buffer(2 * guard + count * element, 0xFF);
  linear.run(x.row(0), x.m, buffer.data() + guard, nullptr, x.stride);
  for (std::size_t i = 0; i < guard; ++i) {
    EXPECT_EQ(buffer[i], 0xFF) << "before out, at " << i;
    EXPECT_EQ(buffer[buffer.size() - 1 - i], 0xFF) << "behind out, at " << i;
  }
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i) {
    const unsigned char* const at = buffer.data() + guard + i * element;
    if (element == sizeof(float)) {
      std::memcpy(&out[i], at, sizeof(float));
    } else {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof(bits));
      out[i] = bf16_to_float(bits);
    }
  }
  return out;
}

/// Checks every element against FP64: half a unit of the result's last place, and rounding errors
/// of FP32 sums that grow with the sum of magnitudes.
inline void expect_near_reference(const std::vector<float>& out, const Matrix& weights,
                                  const Activations& x, DType dtype) {
  const double result_error = dtype == DType::bf16 ? 0x1.01p-8 : 0x1p-24;
  for (std::int64_t t = 0; t < x.m; ++t) {
    for (std::int64_t row = 0; row < weights.n; ++row) {
      double sum = 0;
      double magnitudes = 0;
      for (std::int64_t i = 0; i < weights.k; ++i) {
        const double product = double{weights.at(row, i)} * double{bf16_to_float(x.row(t)[i])};
        sum += product;
        magnitudes += std::abs(product);
      }
      const float value = out[static_cast<std::size_t>(t * weights.n + row)];
      ASSERT_NEAR(value, sum, std::abs(sum) * result_error + magnitudes * 0x1p-21)
          << "token " << t << ", row " << row;
    }
  }
}

}  // namespace slimgemm::test
