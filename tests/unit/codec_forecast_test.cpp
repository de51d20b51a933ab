// SPDX-License-Identifier: Apache-2.0
// A forecast must say what pack() then does, byte for byte.
#include "codec/exponents.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace slimgemm {
namespace {

std::uint16_t with_exponent(int exponent, int sign = 0, int mantissa = 0) {
  return static_cast<std::uint16_t>(sign << 15 | exponent << 7 | mantissa);
}

void expect_as_packed(const std::vector<std::uint16_t>& w, std::int64_t n, std::int64_t k,
                      double rate) {
  PackOptions options;
  options.max_exception_rate = rate;
  const PackForecast forecast = forecast_pack(w, n, k, options);
  const PackedMatrix packed = pack(std::span<const std::uint16_t>(w), n, k, options);
  EXPECT_EQ(forecast.total_bytes, packed.bytes().size());
  EXPECT_EQ(forecast.choice.encoding, packed.encoding());
  EXPECT_EQ(static_cast<std::int64_t>(forecast.choice.exception_count), packed.exception_count());
  EXPECT_EQ(forecast.choice.window_base, packed.window_base());
}

TEST(PackForecast, SaysWhatPackDoes) {
  std::mt19937 random(7);
  for (const std::int64_t n : {1, 16, 33, 200}) {
    for (const std::int64_t k : {1, 64, 100, 1000}) {
      for (const double outside : {0.0, 0.0005, 0.02, 0.5}) {
        std::vector<std::uint16_t> w(static_cast<std::size_t>(n * k));
        std::bernoulli_distribution is_outside(outside);
        for (std::uint16_t& bits : w) {
          const auto low = static_cast<int>(random() & 0xFF);
          bits = with_exponent(is_outside(random) ? 200 : 110 + low % 16, low & 1, low >> 1);
        }
        expect_as_packed(w, n, k, 0.001);
        expect_as_packed(w, n, k, 1);
        expect_as_packed(w, n, k, 0);
      }
    }
  }
}

// 16 exceptions in a row tile fit its first group, the 17th opens another: three of 128 bytes are
// then followed by a section that starts at a multiple of 256.
TEST(PackForecast, CountsGroupsByRowTile) {
  std::vector<std::uint16_t> w(32 * 64, with_exponent(120));
  for (std::size_t i = 0; i < 16; ++i) w[i] = 0;
  const PackOptions all{.threads = 1, .max_exception_rate = 1};
  const std::uint64_t with_16 = forecast_pack(w, 32, 64, all).total_bytes;
  w[16] = 0;
  EXPECT_EQ(forecast_pack(w, 32, 64, all).total_bytes, with_16 + 256);
  w[16] = with_exponent(120);
  w[16 * 64] = 0;  // in the second row tile, whose first group is there anyway
  EXPECT_EQ(forecast_pack(w, 32, 64, all).total_bytes, with_16);
}

TEST(PackForecast, HistogramIsExact) {
  std::vector<std::uint16_t> w;
  for (int e = 0; e < 256; ++e) {
    for (int i = 0; i <= e % 5; ++i) w.push_back(with_exponent(e, i & 1, i));
  }
  const auto size = static_cast<std::int64_t>(w.size());
  const PackForecast forecast = forecast_pack(w, 1, size);
  for (int e = 0; e < 256; ++e) {
    EXPECT_EQ(forecast.exponents[static_cast<std::size_t>(e)],
              static_cast<std::uint64_t>(e % 5) + 1)
        << e;
  }
  EXPECT_TRUE(forecast.choice.has_nonfinite);
}

TEST(PackForecast, RefusesWhatPackRefuses) {
  const std::vector<std::uint16_t> w(8);
  EXPECT_THROW(forecast_pack(w, 2, 3), Error);
  EXPECT_THROW(forecast_pack(w, 0, 8), Error);
}

}  // namespace
}  // namespace slimgemm
