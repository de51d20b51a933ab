// SPDX-License-Identifier: Apache-2.0
// Packs a small matrix, runs a layer from it on the CPU, unpacks it, and compares.
#include <slimgemm/slimgemm.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

constexpr std::int64_t n = 37;
constexpr std::int64_t k = 70;
constexpr std::int64_t m = 3;

float to_float(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16);
}

std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

// Values with eight bits of significand, so that the BF16 conversion above is exact.
std::vector<std::uint16_t> values(std::int64_t count, std::int64_t step) {
  std::vector<std::uint16_t> result;
  for (std::int64_t i = 0; i < count; ++i) {
    result.push_back(to_bf16(static_cast<float>(i * step % 255 - 127) / 128.0F));
  }
  return result;
}

bool close(double expected, double actual) {
  return std::abs(expected - actual) <= 0.01 * std::abs(expected) + 0.01;
}

}  // namespace

int main() {
  const std::vector<std::uint16_t> w = values(n * k, 31);
  const std::vector<std::uint16_t> x = values(m * k, 17);

  slimgemm::PackOptions options;
  options.max_exception_rate = 1.0;  // this matrix holds zeros: keep it in 12 bits all the same
  const slimgemm::PackedMatrix packed = slimgemm::pack(w, n, k, options);
  std::vector<std::uint16_t> restored(w.size());
  slimgemm::unpack(packed, restored);
  if (restored != w) {
    std::puts("unpack did not restore the matrix");
    return 1;
  }

  const slimgemm::Linear linear(packed);
  std::vector<std::uint16_t> out(m * n);
  linear.run(x.data(), m, out.data());
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double expected = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        expected += static_cast<double>(to_float(x[i * k + c])) * to_float(w[j * k + c]);
      }
      if (const double actual = to_float(out[i * n + j]); !close(expected, actual)) {
        std::printf("out[%d, %d] is %g, expected %g\n", static_cast<int>(i), static_cast<int>(j),
                    actual, expected);
        return 1;
      }
    }
  }

  try {
    slimgemm::pack(w, n, k + 1);
    std::puts("a matrix of the wrong size was packed");
    return 1;
  } catch (const slimgemm::Error& error) {
    if (error.code() != slimgemm::ErrorCode::invalid_argument) {
      return 1;
    }
  }
  std::printf("%s\n", linear.plan(m).to_string().c_str());
  return 0;
}
