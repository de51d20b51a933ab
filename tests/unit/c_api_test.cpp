// SPDX-License-Identifier: Apache-2.0
// The C interface: statuses, messages, and the same results as C++.
#include <slimgemm/slimgemm.h>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

using Packed = std::unique_ptr<slimgemm_packed, decltype(&slimgemm_packed_free)>;
using Layer = std::unique_ptr<slimgemm_linear, decltype(&slimgemm_linear_free)>;

Packed pack_ones(int64_t n, int64_t k) {
  const std::vector<uint16_t> w(static_cast<size_t>(n * k), 0x3F80);
  slimgemm_packed* packed = nullptr;
  EXPECT_EQ(slimgemm_pack(w.data(), SLIMGEMM_BF16, n, k, 1, &packed), SLIMGEMM_OK)
      << slimgemm_last_error();
  return {packed, &slimgemm_packed_free};
}

TEST(CApi, PacksRunsAndUnpacks) {
  const Packed packed = pack_ones(16, 64);
  slimgemm_linear* raw = nullptr;
  ASSERT_EQ(slimgemm_linear_create(packed.get(), SLIMGEMM_CPU, 0, &raw), SLIMGEMM_OK)
      << slimgemm_last_error();
  const Layer linear(raw, &slimgemm_linear_free);
  const std::vector<uint16_t> x(64, 0x3F80);
  std::vector<uint16_t> out(16, 0xFFFF);
  ASSERT_EQ(slimgemm_linear_run(linear.get(), x.data(), 1, out.data(), nullptr, 0), SLIMGEMM_OK)
      << slimgemm_last_error();
  for (const uint16_t value : out) EXPECT_EQ(value, 0x4280);  // 64

  std::vector<uint16_t> w(16 * 64);
  ASSERT_EQ(slimgemm_unpack(packed.get(), w.data(), w.size() * 2, 0), SLIMGEMM_OK);
  EXPECT_EQ(w, std::vector<uint16_t>(16 * 64, 0x3F80));
}

TEST(CApi, BytesRoundTrip) {
  const Packed packed = pack_ones(5, 7);
  const void* bytes = nullptr;
  size_t size = 0;
  ASSERT_EQ(slimgemm_packed_bytes(packed.get(), &bytes, &size), SLIMGEMM_OK);
  slimgemm_packed* copy = nullptr;
  ASSERT_EQ(slimgemm_packed_from_bytes(bytes, size, &copy), SLIMGEMM_OK) << slimgemm_last_error();
  const Packed owner(copy, &slimgemm_packed_free);
  const void* copied = nullptr;
  size_t copied_size = 0;
  ASSERT_EQ(slimgemm_packed_bytes(copy, &copied, &copied_size), SLIMGEMM_OK);
  ASSERT_EQ(copied_size, size);
  EXPECT_EQ(std::memcmp(copied, bytes, size), 0);
}

TEST(CApi, NamesWhatIsWrong) {
  const std::vector<uint16_t> w(64, 0x3F80);
  slimgemm_packed* packed = nullptr;
  EXPECT_EQ(slimgemm_pack(w.data(), SLIMGEMM_BF16, -3, 8, 1, &packed), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_NE(std::string(slimgemm_last_error()).find("-3"), std::string::npos);
  EXPECT_EQ(packed, nullptr);
  EXPECT_EQ(slimgemm_pack(w.data(), static_cast<slimgemm_dtype>(7), 8, 8, 1, &packed),
            SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_NE(std::string(slimgemm_last_error()).find("dtype is 7"), std::string::npos);
  EXPECT_EQ(slimgemm_pack(nullptr, SLIMGEMM_BF16, 8, 8, 1, &packed), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_EQ(slimgemm_pack(w.data(), SLIMGEMM_BF16, 8, 8, 1, nullptr), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_EQ(slimgemm_packed_from_bytes(w.data(), w.size(), &packed), SLIMGEMM_CORRUPT_DATA);
  EXPECT_NE(std::string(slimgemm_last_error()), "");

  const Packed good = pack_ones(8, 8);
  std::vector<uint16_t> small(8);
  EXPECT_EQ(slimgemm_unpack(good.get(), small.data(), 16, 1), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_NE(std::string(slimgemm_last_error()).find("128"), std::string::npos);
  slimgemm_linear* linear = nullptr;
  EXPECT_EQ(slimgemm_linear_create(good.get(), static_cast<slimgemm_device>(5), 0, &linear),
            SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_EQ(slimgemm_linear_create(nullptr, SLIMGEMM_CPU, 0, &linear), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_EQ(slimgemm_linear_run(nullptr, w.data(), 1, small.data(), nullptr, 0),
            SLIMGEMM_INVALID_ARGUMENT);
}

TEST(CApi, FreesNull) {
  slimgemm_packed_free(nullptr);
  slimgemm_linear_free(nullptr);
  EXPECT_STREQ(slimgemm_version(), "0.1.0");
}

}  // namespace
