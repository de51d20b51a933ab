// SPDX-License-Identifier: Apache-2.0
// pack_cuda() gives the bytes of pack().
#include <slimgemm/packed.hpp>

#include "unit/codec_test_support.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

using test::Bf16Vector;

constexpr PackOptions always_split{.max_exception_rate = 1.0};
constexpr PackOptions never_split_with_exceptions{.max_exception_rate = 0.0};

// Weights in device memory, `offset` elements from the start of their allocation.
class DeviceWeights {
 public:
  explicit DeviceWeights(const Bf16Vector& w, std::size_t offset = 0) : offset_(offset) {
    const std::size_t bytes = w.size() * sizeof(w[0]);
    EXPECT_EQ(cudaMalloc(&data_, bytes + offset * sizeof(w[0])), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(get_mutable(), w.data(), bytes, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~DeviceWeights() { cudaFree(data_); }
  DeviceWeights(const DeviceWeights&) = delete;
  DeviceWeights& operator=(const DeviceWeights&) = delete;
  [[nodiscard]] const std::uint16_t* get() const { return get_mutable(); }

 private:
  [[nodiscard]] std::uint16_t* get_mutable() const {
    return static_cast<std::uint16_t*>(data_) + offset_;
  }
  void* data_ = nullptr;
  std::size_t offset_;
};

class PackGpu : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }

  static void expect_same(const Bf16Vector& w, std::int64_t n, std::int64_t k,
                          const PackOptions& options, cudaStream_t stream = nullptr,
                          std::size_t offset = 0) {
    SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(k) +
                 ", max_exception_rate = " + std::to_string(options.max_exception_rate));
    const PackedMatrix host = pack(w, n, k, options);
    const DeviceWeights device_w(w, offset);
    const PackedMatrix device = pack_cuda(device_w.get(), n, k, options, stream);
    EXPECT_TRUE(device.bytes().size() == host.bytes().size());
    std::size_t first = 0;
    while (first < host.bytes().size() && first < device.bytes().size() &&
           host.bytes()[first] == device.bytes()[first]) {
      ++first;
    }
    EXPECT_EQ(first, host.bytes().size()) << "the first byte that differs";
    EXPECT_NO_THROW(PackedMatrix::from_bytes(device.bytes()));
  }

  static void expect_same_all_encodings(const Bf16Vector& w, std::int64_t n, std::int64_t k) {
    expect_same(w, n, k, always_split);
    expect_same(w, n, k, {});
    expect_same(w, n, k, never_split_with_exceptions);
  }
};

TEST_F(PackGpu, EveryMixOfOddSizes) {
  constexpr std::int64_t sizes[] = {1, 2, 7, 8, 9, 15, 16, 17, 33, 63, 64, 65, 70, 129};
  for (const std::int64_t n : sizes) {
    for (const std::int64_t k : sizes) {
      const auto size = static_cast<std::size_t>(n * k);
      const Bf16Vector w = test::mixed_weights(size, 110, 0.01, size);
      expect_same(w, n, k, always_split);
      expect_same(w, n, k, never_split_with_exceptions);
    }
  }
}

TEST_F(PackGpu, LongAndThin) {
  for (const auto& [n, k] : {std::pair{1, 50000}, {50000, 1}, {16, 40000}, {40000, 16}}) {
    const auto size = static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
    expect_same_all_encodings(test::mixed_weights(size, 120, 0.01, 7), n, k);
  }
}

TEST_F(PackGpu, EveryBitPattern) {
  Bf16Vector w(65536);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::uint16_t>(i);
  for (const std::int64_t k : {1, 64, 256, 65536}) {
    expect_same_all_encodings(w, 65536 / k, k);
  }
}

TEST_F(PackGpu, EveryWindowPosition) {
  for (int base = 0; base <= format::max_window_base; base += 2) {
    const Bf16Vector w =
        test::mixed_weights(std::size_t{40} * 70, base, 0.02, static_cast<std::uint64_t>(base));
    expect_same(w, 40, 70, always_split);
  }
}

TEST_F(PackGpu, ManyExceptions) {
  for (const double rate : {0.1, 0.4, 1.0}) {
    expect_same_all_encodings(test::mixed_weights(std::size_t{100} * 900, 100, rate, 4), 100, 900);
  }
}

TEST_F(PackGpu, GroupsFillFrontToBack) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 31, 32, 33, 48, 49}) {
    Bf16Vector w = test::mixed_weights(std::size_t{33} * 100, 100, 0, 5);
    for (std::size_t i = 0; i < count; ++i) w[i * 31] = 0;
    expect_same(w, 33, 100, always_split);
  }
}

TEST_F(PackGpu, SpecialValues) {
  for (const std::uint16_t bits :
       {0x0000, 0x8000, 0x0001, 0x807F, 0x0080, 0xFF7F, 0x7F80, 0xFF80, 0x7F81, 0xFFFF}) {
    expect_same_all_encodings(Bf16Vector(std::size_t{18} * 66, bits), 18, 66);
  }
}

TEST_F(PackGpu, LargeMatrix) {
  expect_same(test::mixed_weights(std::size_t{2304} * 8192, 104, 0.0001, 11), 2304, 8192, {});
  expect_same(test::mixed_weights(std::size_t{1024} * 4096, 104, 0.3, 12), 1024, 4096, {});
}

TEST_F(PackGpu, OnAStreamAndAnOddAddress) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  const Bf16Vector w = test::mixed_weights(std::size_t{300} * 500, 100, 0.002, 3);
  for (const std::size_t offset : {0, 1, 3}) expect_same(w, 300, 500, {}, stream, offset);
  EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
}

TEST_F(PackGpu, ArgumentsOutOfRange) {
  const DeviceWeights w(Bf16Vector(64, 0x3F80));
  const auto refused = [&](const std::uint16_t* data, std::int64_t n, std::int64_t k,
                           const PackOptions& options, const std::string& part) {
    try {
      pack_cuda(data, n, k, options);
      ADD_FAILURE() << "no error with \"" << part << "\"";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refused(w.get(), 0, 8, {}, "n = 0");
  refused(w.get(), 8, -1, {}, "k = -1");
  refused(w.get(), std::int64_t{1} << 31, 8, {}, "n = 2147483648");
  refused(w.get(), 8, 8, {.max_exception_rate = 2}, "max_exception_rate = 2");
  const Bf16Vector host(64);
  refused(host.data(), 8, 8, {}, "not memory of a CUDA device");
  refused(nullptr, 8, 8, {}, "not memory of a CUDA device");
}

// Whatever fails leaves the device usable, and the current device as it was.
TEST_F(PackGpu, TheDeviceStaysUsable) {
  EXPECT_THROW(pack_cuda(nullptr, 8, 8), Error);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  int before = -1;
  int after = -1;
  ASSERT_EQ(cudaGetDevice(&before), cudaSuccess);
  expect_same(Bf16Vector(100, 0x3F80), 10, 10, {});
  ASSERT_EQ(cudaGetDevice(&after), cudaSuccess);
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace slimgemm
