// SPDX-License-Identifier: Apache-2.0
// Device images in host memory: what a GPU would get, and back.
#include <slimgemm/device_image.hpp>

#include "format/device_image.hpp"
#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

using test::Bytes;

constexpr int base = 110;

PackedMatrix packed_with(double exception_rate, std::int64_t n = 100, std::int64_t k = 700) {
  const auto w = test::mixed_weights(static_cast<std::size_t>(n * k), base, exception_rate, 1);
  return pack(w, n, k, {.max_exception_rate = 1.0});
}

Bytes image_of(const PackedMatrix& packed, const ImageLayout& layout) {
  Bytes image(layout.size_bytes(), std::byte{0xA5});
  write_image(packed, layout, image);
  return image;
}

void expect_refused(ErrorCode code, const std::string& text, const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown; expected \"" << text << '"';
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

TEST(DeviceImage, GivesThePackedMatrixBack) {
  for (const double rate : {0.0, 0.001, 0.02, 0.3}) {
    for (const std::int64_t spare : {0, 7}) {
      SCOPED_TRACE(std::to_string(rate) + ", spare " + std::to_string(spare));
      const PackedMatrix packed = packed_with(rate);
      ASSERT_EQ(packed.encoding(), Encoding::split12);
      const ImageLayout layout = image_layout(packed, spare);
      EXPECT_TRUE(test::same_bytes(read_image(layout, image_of(packed, layout)), packed));
    }
  }
}

TEST(DeviceImage, KeepsRawMatrices) {
  const auto w = test::mixed_weights(33 * 70, base, 0.2, 2);
  const PackedMatrix raw16 = pack(w, 33, 70, {.max_exception_rate = 0.0});
  std::vector<float> f(33 * 70);
  for (std::size_t i = 0; i < f.size(); ++i) f[i] = 1.0f + 0x1p-23f * static_cast<float>(i * 3449);
  const PackedMatrix raw32 = pack(f, 33, 70);
  for (const PackedMatrix& packed : {raw16, raw32}) {
    const ImageLayout layout = image_layout(packed, 3);
    EXPECT_EQ(layout.more_groups, 0);
    EXPECT_TRUE(test::same_bytes(read_image(layout, image_of(packed, layout)), packed));
  }
}

TEST(DeviceImage, HoldsHalvesOfFp32Weights) {
  std::vector<float> f(16 * 64);
  for (std::size_t i = 0; i < f.size(); ++i) {
    f[i] = std::bit_cast<float>(0x3F80A000u + static_cast<std::uint32_t>(i) * 0x10001u);
  }
  const PackedMatrix packed = pack(f, 16, 64);
  const Bytes image = image_of(packed, image_layout(packed));
  format::HalvesOfPair halves;  // lane 0, plane 0: weights (0, 0) and (0, 1)
  std::memcpy(&halves, image.data(), sizeof(halves));
  EXPECT_EQ(halves.upper, 0x3F813F80u);
  EXPECT_EQ(halves.lower, 0xA001A000u);
  EXPECT_EQ(format::first_of_pair(halves), std::bit_cast<std::uint32_t>(f[0]));
  EXPECT_EQ(format::second_of_pair(halves), std::bit_cast<std::uint32_t>(f[1]));
}

TEST(DeviceImage, TakesOtherWeightsWhereTheyFit) {
  const ImageLayout layout = image_layout(packed_with(0.02), 100);
  const PackedMatrix other = packed_with(0.03);
  ASSERT_EQ(other.window_base(), layout.window_base);
  EXPECT_TRUE(test::same_bytes(read_image(layout, image_of(other, layout)), other));
  expect_refused(ErrorCode::invalid_argument, "room", [&] { image_of(packed_with(0.3), layout); });
  expect_refused(ErrorCode::invalid_argument, "100 x 700",
                 [&] { image_of(packed_with(0.02, 100, 704), layout); });
}

TEST(DeviceImage, OfOneShapeMostlyHaveOneSize) {
  const std::int64_t spare = default_spare_groups(100, 700);
  const std::uint64_t none = image_layout(packed_with(0.0), spare).size_bytes();
  EXPECT_EQ(image_layout(packed_with(0.001), spare).size_bytes(), none);
  EXPECT_GT(image_layout(packed_with(0.02), spare).size_bytes(), none);
  EXPECT_EQ(image_layout(packed_with(0.0), spare).more_groups, 2 * spare);
  expect_refused(ErrorCode::invalid_argument, "spare_groups is -1",
                 [] { image_layout(packed_with(0.0), -1); });
}

TEST(DeviceImage, RefusesWhatIsNoImage) {
  const PackedMatrix packed = packed_with(0.02);
  const ImageLayout layout = image_layout(packed);
  Bytes image = image_of(packed, layout);
  expect_refused(ErrorCode::invalid_argument, "bytes",
                 [&] { read_image(layout, std::span(image).first(image.size() - 1)); });
  const format::ImageOffsets at(layout.encoding, 100, 700);
  format::ExceptionHead head{};
  std::memcpy(&head, image.data() + at.head, sizeof(head));
  head.more_end = static_cast<std::uint32_t>(layout.more_groups) + 1;
  std::memcpy(image.data() + at.head, &head, sizeof(head));
  expect_refused(ErrorCode::corrupt_data, "row tile 0", [&] { read_image(layout, image); });
}

TEST(DeviceImage, RefusesLayoutsThatAreNone) {
  const ImageLayout good = image_layout(packed_with(0.0));
  const auto expect = [](const char* field, ImageLayout layout) {
    expect_refused(ErrorCode::invalid_argument, field,
                   [&] { static_cast<void>(layout.size_bytes()); });
  };
  ImageLayout layout = good;
  layout.n = 0;
  expect("layout.n", layout);
  layout = good;
  layout.k = max_dimension + 1;
  expect("layout.k", layout);
  layout = good;
  layout.window_base = 240;
  expect("layout.window_base", layout);
  layout = good;
  layout.more_groups = -1;
  expect("layout.more_groups", layout);
  layout = good;
  layout.encoding = static_cast<Encoding>(9);
  expect("layout.encoding", layout);
}

TEST(DeviceImage, ALinearOverOneIsForAGpuAlone) {
  alignas(image_alignment) static unsigned char image[image_alignment];
  const ImageLayout layout = image_layout(packed_with(0.0));
  expect_refused(ErrorCode::invalid_argument, "Device::cuda",
                 [&] { linear_over_image(layout, image, {.device = Device::cpu}); });
  expect_refused(ErrorCode::invalid_argument, "aligned",
                 [&] { linear_over_image(layout, image + 1, {.device = Device::cuda}); });
}

}  // namespace
}  // namespace slimgemm
