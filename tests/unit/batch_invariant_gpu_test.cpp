// SPDX-License-Identifier: Apache-2.0
// LinearOptions::batch_invariant on a GPU: every row has the same bits for all m from 1 to 256 and
// for some beyond.
#include "cuda/device_memory.hpp"
#include "unit/gpu_test_support.hpp"

#include <slimgemm/slimgemm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

namespace slimgemm::cuda {
namespace {

constexpr std::int64_t tokens_max = 1030;

struct InvariantCase {
  Encoding encoding;
  std::int64_t n;
  std::int64_t k;
  std::size_t x_offset;  // elements; 1: x is not aligned
};

class BatchInvariantGpu : public testing::TestWithParam<InvariantCase> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }
};
INSTANTIATE_TEST_SUITE_P(Layers, BatchInvariantGpu,
                         testing::Values(InvariantCase{Encoding::split12, 2304, 2048, 0},
                                         InvariantCase{Encoding::split12, 8192, 512, 0},
                                         InvariantCase{Encoding::split12, 80, 4096, 0},
                                         InvariantCase{Encoding::split12, 256, 1000, 0},
                                         InvariantCase{Encoding::split12, 256, 1024, 1},
                                         InvariantCase{Encoding::raw16, 640, 1024, 0},
                                         InvariantCase{Encoding::raw32, 256, 2048, 0}));

/// Bytes of the first m rows of out.
std::vector<unsigned char> run(const Linear& linear, const std::uint16_t* x, std::int64_t m,
                               const DeviceMemory& out) {
  const auto bytes = static_cast<std::size_t>(m * linear.n() * size_bytes(linear.out_dtype()));
  check(cudaMemset(out.as<void>(), 0xFF, bytes), "poison out");
  linear.run(x, m, out.as<void>());
  std::vector<unsigned char> host(bytes);
  check(cudaMemcpy(host.data(), out.as<void>(), bytes, cudaMemcpyDeviceToHost), "copy out");
  return host;
}

TEST_P(BatchInvariantGpu, GivesARowTheSameBitsForEveryTokenCount) {
  const InvariantCase c = GetParam();
  const Layer layer = make_layer(c.encoding, c.n, c.k, 0.002, 11);
  const Linear linear(layer.packed, {.device = Device::cuda, .batch_invariant = true});
  const Input input = make_input(tokens_max, c.k, c.k, 12);
  const DeviceMemory x_memory((input.x.size() + c.x_offset) * 2);
  auto* const x = x_memory.as<std::uint16_t>() + c.x_offset;
  check(cudaMemcpy(x, input.x.data(), input.x.size() * 2, cudaMemcpyHostToDevice), "copy x");
  const DeviceMemory out(static_cast<std::size_t>(tokens_max * c.n * 4));
  const std::vector<unsigned char> all = run(linear, x, tokens_max, out);
  std::vector<std::int64_t> counts{257, 288, 300, 512, 777};
  for (std::int64_t m = 1; m <= 256; ++m) counts.push_back(m);
  for (const std::int64_t m : counts) {
    const std::vector<unsigned char> few = run(linear, x, m, out);
    ASSERT_TRUE(std::equal(few.begin(), few.end(), all.begin()))
        << "m=" << m << " with " << linear.plan(m).kernel << ", m=" << tokens_max << " with "
        << linear.plan(tokens_max).kernel;
  }
}

}  // namespace
}  // namespace slimgemm::cuda
