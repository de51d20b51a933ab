// SPDX-License-Identifier: Apache-2.0
// Window choice, encoding choice and the sizes that follow from them.
#include "codec/sections.hpp"
#include "codec/window.hpp"
#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace slimgemm {
namespace {

// The rule as docs/format.md words it, weight by weight.
Window slow_best_window(const ExponentHistogram& histogram) {
  Window best;
  for (int base = 0; base <= 238; base += 2) {
    std::uint64_t covered = 0;
    for (int e = 1; e <= 254; ++e) {
      if (e >= base && e <= base + 15) covered += histogram[static_cast<std::size_t>(e)];
    }
    if (covered >= best.covered) best = {base, covered};
  }
  return best;
}

TEST(CodecWindow, CoversTheMostWeights) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 500; ++trial) {
    ExponentHistogram histogram{};
    const std::uint64_t entries = 1 + random() % 40;
    for (std::uint64_t i = 0; i < entries; ++i) histogram[random() % 256] += random() % 4;
    const Window fast = best_window(histogram);
    const Window slow = slow_best_window(histogram);
    EXPECT_EQ(fast.base, slow.base);
    EXPECT_EQ(fast.covered, slow.covered);
  }
}

TEST(CodecWindow, OfEqualsTheLargest) {
  ExponentHistogram histogram{};
  EXPECT_EQ(best_window(histogram).base, 238);
  histogram[100] = 5;
  EXPECT_EQ(best_window(histogram).base, 100);
  histogram[101] = 5;
  EXPECT_EQ(best_window(histogram).base, 100);
  histogram[99] = 1;
  EXPECT_EQ(best_window(histogram).base, 98);
  histogram[240] = 11;
  EXPECT_EQ(best_window(histogram).base, 238);
}

TEST(CodecWindow, ExponentsThatAreNeverInside) {
  ExponentHistogram histogram{};
  histogram[0] = 100;    // zero, subnormals
  histogram[255] = 100;  // Inf, NaN
  histogram[3] = 1;
  const Window window = best_window(histogram);
  EXPECT_EQ(window.base, 2);
  EXPECT_EQ(window.covered, 1U);
  for (int base = 0; base <= 238; base += 2) {
    for (const std::uint16_t bits : {0x0000, 0x8001, 0x007F, 0x7F80, 0xFFFF}) {
      EXPECT_FALSE(in_window(bits, base)) << bits << " " << base;
    }
  }
}

TEST(CodecWindow, InWindowIsSixteenExponents) {
  for (int base = 0; base <= 238; base += 2) {
    int inside = 0;
    for (unsigned e = 0; e < 256; ++e) {
      for (const unsigned sign : {0U, 1U}) {
        const bool wanted =
            e != 0 && e != 255 && static_cast<int>(e) >= base && static_cast<int>(e) <= base + 15;
        EXPECT_EQ(in_window(test::bf16_bits(sign, e, 77), base), wanted) << base << " " << e;
        inside += wanted ? 1 : 0;
      }
    }
    EXPECT_EQ(inside, base == 0 ? 30 : 32);
  }
}

TEST(CodecWindow, RawAboveTheExceptionRate) {
  ExponentHistogram histogram{};
  histogram[100] = 99;
  histogram[200] = 1;
  const Bf16Encoding at_limit = choose_encoding(histogram, 0.01);
  EXPECT_EQ(at_limit.encoding, Encoding::split12);
  EXPECT_EQ(at_limit.exception_count, 1U);
  EXPECT_EQ(at_limit.window_base, 100);
  EXPECT_FALSE(at_limit.has_nonfinite);
  histogram[200] = 2;
  EXPECT_EQ(choose_encoding(histogram, 0.01).encoding, Encoding::raw16);
  EXPECT_EQ(choose_encoding(histogram, 0).encoding, Encoding::raw16);
  EXPECT_EQ(choose_encoding(histogram, 1).encoding, Encoding::split12);
  histogram[255] = 1;
  EXPECT_TRUE(choose_encoding(histogram, 0).has_nonfinite);
  EXPECT_TRUE(choose_encoding(histogram, 1).has_nonfinite);
}

TEST(CodecWindow, NoExceptionNeedsNoRate) {
  ExponentHistogram histogram{};
  histogram[120] = 1000;
  EXPECT_EQ(choose_encoding(histogram, 0).encoding, Encoding::split12);
}

TEST(CodecWindow, ExtraGroups) {
  EXPECT_EQ(extra_groups(0), 0U);
  EXPECT_EQ(extra_groups(16), 0U);
  EXPECT_EQ(extra_groups(17), 1U);
  EXPECT_EQ(extra_groups(32), 1U);
  EXPECT_EQ(extra_groups(33), 2U);
  std::array<std::uint32_t, 4> sums = {99, 2, 0, 5};
  EXPECT_EQ(accumulate_extra_groups(sums.data(), 3), 10U);
  EXPECT_EQ(sums, (std::array<std::uint32_t, 4>{0, 2, 2, 7}));
}

TEST(CodecWindow, ExtraGroupsBeyond32BitsAreSeen) {
  std::array<std::uint32_t, 3> sums = {0, 0xFFFFFFF0, 0x20};
  EXPECT_GT(accumulate_extra_groups(sums.data(), 2), max_group_count);
}

TEST(CodecSections, FollowOneAnother) {
  const auto h = lay_out({.encoding = Encoding::split12,
                          .n = 33,
                          .k = 65,
                          .window_base = 100,
                          .exception_count = 40,
                          .group_count = 5});
  ASSERT_TRUE(h.has_value());
  EXPECT_EQ(h->tiles_offset, 256U);
  EXPECT_EQ(h->tiles_bytes, 3U * 2 * 1536);
  EXPECT_EQ(h->groups_offset, 256U + 6 * 1536);
  EXPECT_EQ(h->extra_offset, h->groups_offset + 768);  // 5 groups of 128 bytes, rounded up to 256
  EXPECT_EQ(h->total_bytes, h->extra_offset + 16);
  const auto raw = lay_out({.encoding = Encoding::raw32, .n = 33, .k = 65});
  ASSERT_TRUE(raw.has_value());
  EXPECT_EQ(raw->total_bytes, 256U + 6 * 4096);
  EXPECT_EQ(raw->groups_offset + raw->extra_offset + raw->group_count, 0U);
}

TEST(CodecSections, SizesThatOverflowAreRefused) {
  constexpr std::uint64_t most = max_dimension;
  // 2^27 x 2^25 tiles of 4096 bytes are 2^64.
  EXPECT_FALSE(lay_out({.encoding = Encoding::raw32, .n = most, .k = most}).has_value());
  EXPECT_TRUE(lay_out({.encoding = Encoding::raw16, .n = most, .k = most}).has_value());
  const Contents with_groups{
      .encoding = Encoding::split12, .n = 1, .k = 1, .group_count = std::uint64_t{1} << 57};
  EXPECT_FALSE(lay_out(with_groups).has_value());
  try {
    make_header({.encoding = Encoding::raw32, .n = most, .k = most});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("n = 2147483647, k = 2147483647"), std::string::npos);
  }
}

}  // namespace
}  // namespace slimgemm
