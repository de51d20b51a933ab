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

slimgemm_linear_options cpu_options() {
  slimgemm_linear_options options;
  std::memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.device = SLIMGEMM_CPU;
  return options;
}

TEST(CApi, CreatesWithOptions) {
  const Packed packed = pack_ones(16, 64);
  slimgemm_linear_options options = cpu_options();
  options.cpu_threads = 1;
  options.programmatic_launch = 1;  // of a GPU alone
  options.batch_invariant = 1;
  slimgemm_linear* raw = nullptr;
  ASSERT_EQ(slimgemm_linear_create_with(packed.get(), &options, &raw), SLIMGEMM_OK)
      << slimgemm_last_error();
  const Layer linear(raw, &slimgemm_linear_free);
  const std::vector<uint16_t> x(64, 0x3F80);
  std::vector<uint16_t> out(16, 0xFFFF);
  ASSERT_EQ(slimgemm_linear_run(linear.get(), x.data(), 1, out.data(), nullptr, 0), SLIMGEMM_OK)
      << slimgemm_last_error();
  for (const uint16_t value : out) EXPECT_EQ(value, 0x4280);  // 64
}

TEST(CApi, NamesTheOptionThatIsWrong) {
  const Packed packed = pack_ones(8, 8);
  slimgemm_linear* linear = nullptr;
  const auto expect_refused = [&](const slimgemm_linear_options& options, const char* message) {
    EXPECT_EQ(slimgemm_linear_create_with(packed.get(), &options, &linear),
              SLIMGEMM_INVALID_ARGUMENT);
    EXPECT_NE(std::string(slimgemm_last_error()).find(message), std::string::npos)
        << slimgemm_last_error();
    EXPECT_EQ(linear, nullptr);
  };
  slimgemm_linear_options options = cpu_options();
  options.struct_size = 0;  // forgotten
  expect_refused(options, "options.struct_size is 0: it must be sizeof(slimgemm_linear_options)");
  options.struct_size = offsetof(slimgemm_linear_options, programmatic_launch);
  expect_refused(options, "options.struct_size is ");
  options.struct_size = SIZE_MAX;
  expect_refused(options, "options.struct_size is ");
  options = cpu_options();
  options.device = 0;
  expect_refused(options, "device is 0");
  options = cpu_options();
  options.cpu_threads = -2;
  expect_refused(options, "threads = -2");
  options = cpu_options();
  options.programmatic_launch = 7;
  expect_refused(options, "options.programmatic_launch is 7: it must be 0 or 1");
  options = cpu_options();
  options.batch_invariant = -1;
  expect_refused(options, "options.batch_invariant is -1: it must be 0 or 1");
  EXPECT_EQ(slimgemm_linear_create_with(packed.get(), nullptr, &linear), SLIMGEMM_INVALID_ARGUMENT);
  options = cpu_options();
  EXPECT_EQ(slimgemm_linear_create_with(nullptr, &options, &linear), SLIMGEMM_INVALID_ARGUMENT);
  EXPECT_EQ(slimgemm_linear_create_with(packed.get(), &options, nullptr),
            SLIMGEMM_INVALID_ARGUMENT);
}

// A program built with a later header, whose struct has more fields.
TEST(CApi, TakesLaterOptionsAsLongAsTheirNewFieldsAreZero) {
  struct Later {
    slimgemm_linear_options known;
    int32_t fields[2];
  };
  const Packed packed = pack_ones(8, 8);
  Later later = {cpu_options(), {0, 0}};
  later.known.struct_size = sizeof(later);
  slimgemm_linear* linear = nullptr;
  ASSERT_EQ(slimgemm_linear_create_with(packed.get(), &later.known, &linear), SLIMGEMM_OK)
      << slimgemm_last_error();
  slimgemm_linear_free(linear);
  later.fields[1] = 1;
  EXPECT_EQ(slimgemm_linear_create_with(packed.get(), &later.known, &linear), SLIMGEMM_UNSUPPORTED);
  EXPECT_NE(std::string(slimgemm_last_error()).find("at byte 36"), std::string::npos)
      << slimgemm_last_error();
  // A field in the padding after the last one that is known.
  later.fields[1] = 0;
  reinterpret_cast<unsigned char*>(&later)[28] = 1;
  EXPECT_EQ(slimgemm_linear_create_with(packed.get(), &later.known, &linear), SLIMGEMM_UNSUPPORTED);
  EXPECT_NE(std::string(slimgemm_last_error()).find("at byte 28"), std::string::npos)
      << slimgemm_last_error();
  EXPECT_EQ(linear, nullptr);
}

TEST(CApi, FreesNull) {
  slimgemm_packed_free(nullptr);
  slimgemm_linear_free(nullptr);
  EXPECT_STREQ(slimgemm_version(), "0.1.0");
}

}  // namespace
