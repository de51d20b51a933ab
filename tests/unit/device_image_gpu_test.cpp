// SPDX-License-Identifier: Apache-2.0
// Images in device memory: packed there, multiplied from there, decoded there, written again.
#include <slimgemm/device_image.hpp>

#include "unit/codec_test_support.hpp"
#include "unit/gpu_test_support.hpp"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::cuda {
namespace {

using test::Bf16Vector;
using test::Bytes;

constexpr int base = 110;

class DeviceImageGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }
};

template <class T>
DeviceMemory on_device(const std::vector<T>& host) {
  DeviceMemory memory(host.size() * sizeof(T));
  check(cudaMemcpy(memory.as<void>(), host.data(), memory.size_bytes(), cudaMemcpyHostToDevice),
        "copy to the device");
  return memory;
}

template <class T>
std::vector<T> on_host(const DeviceMemory& memory) {
  std::vector<T> host(memory.size_bytes() / sizeof(T));
  check(cudaMemcpy(host.data(), memory.as<void>(), memory.size_bytes(), cudaMemcpyDeviceToHost),
        "copy to the host");
  return host;
}

struct Shape {
  std::int64_t n;
  std::int64_t k;
};
constexpr Shape shapes[] = {{16, 64}, {1, 1}, {33, 7}, {100, 700}, {257, 513}, {512, 4096}};

TEST_F(DeviceImageGpu, IsTheOneOfTheHost) {
  for (const Shape& s : shapes) {
    for (const double rate : {0.0, 0.01, 0.2}) {
      for (const double most : {1.0, 0.0}) {
        SCOPED_TRACE(std::to_string(s.n) + " x " + std::to_string(s.k) + ", " +
                     std::to_string(rate) + ", at most " + std::to_string(most));
        const Bf16Vector w =
            test::mixed_weights(static_cast<std::size_t>(s.n * s.k), base, rate, 3);
        const PackOptions options{.max_exception_rate = most};
        const PackedMatrix packed = pack(w, s.n, s.k, options);
        const DeviceMemory dense = on_device(w);
        const ImageLayout layout = plan_image_cuda(dense.as<std::uint16_t>(), s.n, s.k, options, 5);
        const ImageLayout expected = image_layout(packed, 5);
        ASSERT_EQ(layout.encoding, expected.encoding);
        ASSERT_EQ(layout.window_base, expected.window_base);
        ASSERT_EQ(layout.more_groups, expected.more_groups);
        const DeviceMemory image = on_device(Bytes(layout.size_bytes(), std::byte{0xA5}));
        pack_image_cuda(dense.as<std::uint16_t>(), layout, image.as<void>());
        Bytes host(layout.size_bytes());
        write_image(packed, layout, host);
        EXPECT_EQ(on_host<std::byte>(image), host);

        const DeviceMemory out = on_device(Bf16Vector(w.size(), 0xBEEF));
        unpack_image_cuda(layout, image.as<void>(), out.as<void>(), 0, s.n);
        check(cudaDeviceSynchronize(), "unpack");
        EXPECT_EQ(on_host<std::uint16_t>(out), w);
      }
    }
  }
}

TEST_F(DeviceImageGpu, IsDecodedInParts) {
  const Bf16Vector w = test::mixed_weights(100 * 700, base, 0.02, 4);
  const PackedMatrix packed = pack(w, 100, 700, {.max_exception_rate = 1.0});
  const ImageLayout layout = image_layout(packed);
  Bytes host(layout.size_bytes());
  write_image(packed, layout, host);
  const DeviceMemory image = on_device(host);
  for (const auto& [begin, end] : {std::pair{0, 16}, {16, 50}, {96, 100}, {32, 33}}) {
    const DeviceMemory out =
        on_device(Bf16Vector(static_cast<std::size_t>(end - begin) * 700 + 8, 7));
    unpack_image_cuda(layout, image.as<void>(), out.as<void>(), begin, end);
    check(cudaDeviceSynchronize(), "unpack");
    Bf16Vector expected(w.begin() + begin * 700, w.begin() + end * 700);
    expected.resize(expected.size() + 8, 7);  // nothing beyond the rows is written
    EXPECT_EQ(on_host<std::uint16_t>(out), expected) << begin << " to " << end;
  }
  EXPECT_THROW(unpack_image_cuda(layout, image.as<void>(), image.as<void>(), 8, 100), Error);
  EXPECT_THROW(unpack_image_cuda(layout, image.as<void>(), image.as<void>(), 0, 101), Error);
}

TEST_F(DeviceImageGpu, ALinearOverItIsTheLinearOfItsPackedMatrix) {
  const Bf16Vector first = test::mixed_weights(512 * 4096, base, 0.002, 5);
  const Bf16Vector second = test::mixed_weights(512 * 4096, base, 0.002, 6);
  const DeviceMemory dense = on_device(first);
  const auto* const w = dense.as<std::uint16_t>();
  const ImageLayout layout =
      plan_image_cuda(w, 512, 4096, {.max_exception_rate = 1.0}, default_spare_groups(512, 4096));
  const DeviceMemory image(layout.size_bytes());
  pack_image_cuda(w, layout, image.as<void>());
  const Linear over = linear_over_image(layout, image.as<void>(), {.device = Device::cuda});

  for (const Bf16Vector* weights : {&first, &second}) {
    if (weights == &second) {
      check(cudaMemcpy(dense.as<void>(), second.data(), dense.size_bytes(), cudaMemcpyHostToDevice),
            "copy");
      pack_image_cuda(w, layout, image.as<void>());
    }
    const Linear own(pack(*weights, 512, 4096, {.max_exception_rate = 1.0}),
                     {.device = Device::cuda});
    for (const std::int64_t m : {1, 8, 32, 128, 256}) {
      const Bf16Vector x(static_cast<std::size_t>(m) * 4096, 0x3F80);
      const DeviceMemory x_device = on_device(x);
      const DeviceMemory outs[2] = {DeviceMemory(static_cast<std::size_t>(m) * 1024),
                                    DeviceMemory(static_cast<std::size_t>(m) * 1024)};
      over.run(x_device.as<std::uint16_t>(), m, outs[0].as<void>());
      own.run(x_device.as<std::uint16_t>(), m, outs[1].as<void>());
      check(cudaDeviceSynchronize(), "run");
      EXPECT_EQ(on_host<std::uint16_t>(outs[0]), on_host<std::uint16_t>(outs[1])) << "m = " << m;
    }
  }
}

TEST_F(DeviceImageGpu, WeightsThatDoNotFitChangeNothing) {
  const DeviceMemory dense = on_device(test::mixed_weights(64 * 512, base, 0.0, 7));
  const auto* const w = dense.as<std::uint16_t>();
  const ImageLayout layout = plan_image_cuda(w, 64, 512);
  const DeviceMemory image(layout.size_bytes());
  pack_image_cuda(w, layout, image.as<void>());
  const Bytes before = on_host<std::byte>(image);
  const DeviceMemory other = on_device(test::mixed_weights(64 * 512, base + 60, 0.0, 8));
  EXPECT_THROW(pack_image_cuda(other.as<std::uint16_t>(), layout, image.as<void>()), Error);
  EXPECT_EQ(on_host<std::byte>(image), before);
  const Bf16Vector on_the_host(64 * 512, 0);
  EXPECT_THROW(pack_image_cuda(on_the_host.data(), layout, image.as<void>()), Error);
}

}  // namespace
}  // namespace slimgemm::cuda
