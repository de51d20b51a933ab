// SPDX-License-Identifier: Apache-2.0
// The oneDNN baseline on small matrices, for every m of the judge's cases.
#include "judge/contender.hpp"

#include <slimgemm/error.hpp>

#include "support/bf16.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

namespace slimgemm::judge {
namespace {

struct Layers {
  // The unpooler is large enough for its slice of 1024 rows; the others are as small as can be.
  static constexpr std::int64_t n[layer_count] = {48, 33, 80, 1040, 32};
  static constexpr std::int64_t k[layer_count] = {128, 64, 97, 64, 160};

  Layers() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < layer_count; ++i) {
      const DType dtype = layers()[i].dtype;
      values[i].resize(static_cast<std::size_t>(n[i] * k[i]));
      for (float& value : values[i]) {
        value = normal(random);
        if (dtype == DType::bf16) {
          bits[i].push_back(float_to_bf16(value));
          value = bf16_to_float(bits[i].back());
        }
      }
      const void* const host = dtype == DType::bf16 ? static_cast<const void*>(bits[i].data())
                                                    : static_cast<const void*>(values[i].data());
      set[i] = {n[i], k[i], dtype, host, nullptr};
    }
  }

  std::array<std::vector<float>, layer_count> values;
  std::array<std::vector<std::uint16_t>, layer_count> bits;
  WeightSet set = WeightSet(layer_count);
};

// The baseline of a build and a machine that have it, else null.
std::unique_ptr<Contender> prepared(const Layers& layers) {
  try {
    auto baseline = make_onednn_baseline();
    baseline->prepare(layers.set);
    return baseline;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    return nullptr;
  }
}

void check_case(Contender& baseline, const Layers& layers, const Case& c) {
  const auto layer = static_cast<std::size_t>(c.layer);
  const std::int64_t n = std::min(c.n(), Layers::n[layer]);
  const std::int64_t k = Layers::k[layer];
  std::mt19937 random(static_cast<unsigned>(c.m));
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> x(static_cast<std::size_t>(c.m * k));
  for (std::uint16_t& value : x) value = float_to_bf16(normal(random));

  const bool f32 = c.dtype() == DType::f32;
  std::vector<unsigned char> out(static_cast<std::size_t>(c.m * n * size_bytes(c.dtype())), 0xFF);
  baseline.run(c.layer, x.data(), c.m, out.data(), nullptr);

  double error = 0;
  double total = 0;
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l) {
        sum += double{bf16_to_float(x[static_cast<std::size_t>(i * k + l)])} *
               double{layers.values[layer][static_cast<std::size_t>(j * k + l)]};
      }
      const auto at = static_cast<std::size_t>(i * n + j);
      const float value =
          f32 ? reinterpret_cast<const float*>(out.data())[at]
              : bf16_to_float(reinterpret_cast<const std::uint16_t*>(out.data())[at]);
      error += (value - sum) * (value - sum);
      total += sum * sum;
    }
  }
  EXPECT_LE(std::sqrt(error / total), f32 ? 1e-5 : 4e-3);
}

TEST(OneDnnBaseline, EveryCaseIsRight) {
  const Layers layers;
  const auto baseline = prepared(layers);
  if (!baseline) GTEST_SKIP() << "no oneDNN with BF16 here";
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(std::string(info(c.layer).name) + ", m = " + std::to_string(c.m));
    check_case(*baseline, layers, c);
  }
}

TEST(OneDnnBaseline, SaysWhatItReadsAndHow) {
  const Layers layers;
  const auto baseline = prepared(layers);
  if (!baseline) GTEST_SKIP() << "no oneDNN with BF16 here";
  EXPECT_EQ(baseline->name(), "onednn");
  EXPECT_EQ(baseline->weight_bytes(Layer::qkv_gate, 1), 48 * 128 * 2);
  EXPECT_EQ(baseline->weight_bytes(Layer::unpooler, 8), 1024 * 64 * 2);
  EXPECT_EQ(baseline->weight_bytes(Layer::unpooler, 16), 1040 * 64 * 2);
  EXPECT_EQ(baseline->weight_bytes(Layer::router, 16), 32 * 160 * 4);
  EXPECT_FALSE(baseline->describe(Layer::pooler, 1).empty());
}

TEST(OneDnnBaseline, RefusesAnUnpreparedTokenCountByName) {
  const Layers layers;
  const auto baseline = prepared(layers);
  if (!baseline) GTEST_SKIP() << "no oneDNN with BF16 here";
  try {
    baseline->run(Layer::pooler, nullptr, 77, nullptr, nullptr);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("pooler at m = 77"), std::string::npos);
  }
}

}  // namespace
}  // namespace slimgemm::judge
