// SPDX-License-Identifier: Apache-2.0
// What Linear promises whatever the backend: argument checks by name, m = 0, row slices, sharing.
#include <slimgemm/slimgemm.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace slimgemm {
namespace {

constexpr std::int64_t n = 40;
constexpr std::int64_t k = 70;

// Weight (j, c) is 1 + (j * 7 + c) % 5, exact in BF16.
PackedMatrix make_packed() {
  std::vector<std::uint16_t> w(static_cast<std::size_t>(n * k));
  const std::uint16_t one_to_five[] = {0x3F80, 0x4000, 0x4040, 0x4080, 0x40A0};
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t c = 0; c < k; ++c) {
      w[static_cast<std::size_t>(j * k + c)] = one_to_five[(j * 7 + c) % 5];
    }
  }
  return pack(std::span<const std::uint16_t>(w), n, k);
}

float to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

/// The error that `call` throws; fails the test if it throws none.
std::string error_of(ErrorCode code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

void expect_mentions(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << message << " should mention " << part;
}

class LinearTest : public testing::Test {
 protected:
  Linear linear{make_packed()};
  std::vector<std::uint16_t> x = std::vector<std::uint16_t>(3 * (k + 10), 0x3F80);  // ones
  std::vector<std::uint16_t> out = std::vector<std::uint16_t>(3 * n, 0xFFFF);

  static float expected(std::int64_t j) {
    float sum = 0;
    for (std::int64_t c = 0; c < k; ++c) sum += static_cast<float>(1 + (j * 7 + c) % 5);
    return sum;  // at most 350: exact where even, else one BF16 rounding
  }
};

TEST_F(LinearTest, ComputesEveryRow) {
  linear.run(x.data(), 3, out.data());
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    EXPECT_NEAR(to_float(out[static_cast<std::size_t>(i)]), expected(i % n), 1.0f) << i;
  }
}

TEST_F(LinearTest, TakesARowStride) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % (k + 10) >= static_cast<std::size_t>(k)) x[i] = 0x7FC0;  // NaN between the rows
  }
  linear.run(x.data(), 3, out.data(), nullptr, k + 10);
  for (std::int64_t i = 0; i < 3 * n; ++i) {
    EXPECT_NEAR(to_float(out[static_cast<std::size_t>(i)]), expected(i % n), 1.0f) << i;
  }
}

TEST_F(LinearTest, NoTokensWriteNothing) {
  linear.run(nullptr, 0, nullptr);
  EXPECT_EQ(linear.plan(0).m, 0);
}

TEST_F(LinearTest, RowSlicesShareTheWeights) {
  const Linear slice = linear.rows(16, 35);
  EXPECT_EQ(slice.n(), 19);
  EXPECT_EQ(slice.k(), k);
  const Linear inner = slice.rows(16, 19);
  std::vector<std::uint16_t> all(n);
  std::vector<std::uint16_t> part(19);
  std::vector<std::uint16_t> last(3);
  linear.run(x.data(), 1, all.data());
  slice.run(x.data(), 1, part.data());
  inner.run(x.data(), 1, last.data());
  for (std::size_t i = 0; i < 19; ++i) EXPECT_EQ(part[i], all[16 + i]);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(last[i], all[32 + i]);
}

TEST_F(LinearTest, RefusesBadSlicesByName) {
  const auto slice = [&](std::int64_t begin, std::int64_t end) {
    return error_of(ErrorCode::invalid_argument,
                    [&] { static_cast<void>(linear.rows(begin, end)); });
  };
  expect_mentions(slice(8, 24), "8");
  expect_mentions(slice(0, 41), "[0, 41)");
  expect_mentions(slice(-16, 16), "-16");
  expect_mentions(slice(16, 16), "[16, 16)");
}

TEST_F(LinearTest, RefusesBadCallsByName) {
  const auto run = [&](const std::uint16_t* from, std::int64_t m, void* to, std::int64_t stride) {
    return error_of(ErrorCode::invalid_argument, [&] { linear.run(from, m, to, nullptr, stride); });
  };
  expect_mentions(run(x.data(), -1, out.data(), 0), "m is -1");
  expect_mentions(run(x.data(), std::int64_t{1} << 31, out.data(), 0), "2147483648");
  expect_mentions(run(nullptr, 1, out.data(), 0), "x is null");
  expect_mentions(run(x.data(), 1, nullptr, 0), "out is null");
  expect_mentions(run(x.data(), 1, out.data(), k - 1), "x_row_stride is 69");
  expect_mentions(run(x.data(), 1, out.data(), -k), "x_row_stride is -70");
  auto* const odd = reinterpret_cast<std::uint16_t*>(reinterpret_cast<char*>(x.data()) + 1);
  expect_mentions(run(odd, 1, out.data(), 0), "x is not aligned");
  expect_mentions(run(x.data(), 1, reinterpret_cast<char*>(out.data()) + 1, 0),
                  "out is not aligned");
  expect_mentions(
      error_of(ErrorCode::invalid_argument, [&] { static_cast<void>(linear.plan(-5)); }), "-5");
}

TEST_F(LinearTest, RefusesAnUnknownDevice) {
  expect_mentions(error_of(ErrorCode::invalid_argument,
                           [] { Linear(make_packed(), {.device = static_cast<Device>(9)}); }),
                  "device is 9");
}

TEST_F(LinearTest, PlanSaysWhoServes) {
  const Plan plan = linear.plan(3);
  EXPECT_EQ(plan.n, n);
  EXPECT_EQ(plan.k, k);
  EXPECT_EQ(plan.m, 3);
  EXPECT_FALSE(plan.kernel.empty());
  EXPECT_GT(plan.weight_bytes, n * k);
  expect_mentions(plan.to_string(), plan.kernel);
}

TEST_F(LinearTest, RunsOnSeveralThreadsAtOnce) {
  std::vector<std::vector<std::uint16_t>> results(4, std::vector<std::uint16_t>(3 * n));
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) linear.run(x.data(), 3, result.data());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(LinearWeights, RefusesShapesByName) {
  const std::vector<std::uint16_t> w(64);
  const auto try_pack = [&](std::int64_t rows, std::int64_t columns) {
    return error_of(ErrorCode::invalid_argument, [&] {
      static_cast<void>(pack(std::span<const std::uint16_t>(w), rows, columns));
    });
  };
  expect_mentions(try_pack(0, 8), "0");
  expect_mentions(try_pack(8, 0), "0");
  expect_mentions(try_pack(-8, -8), "-8");
  expect_mentions(try_pack(std::int64_t{1} << 31, 1), "2147483648");
  expect_mentions(try_pack(1, std::int64_t{1} << 31), "2147483648");
  expect_mentions(try_pack(8, 9), "64");
}

TEST(LinearWeights, Fp32LayersGiveFp32) {
  const std::vector<float> w(16 * 64, 0.1f);
  const Linear linear(pack(std::span<const float>(w), 16, 64));
  EXPECT_EQ(linear.out_dtype(), DType::f32);
  const std::vector<std::uint16_t> x(64, 0x3F80);
  std::vector<float> out(16);
  linear.run(x.data(), 1, out.data());
  for (const float value : out) EXPECT_NEAR(value, 6.4f, 1e-5f);
}

}  // namespace
}  // namespace slimgemm
