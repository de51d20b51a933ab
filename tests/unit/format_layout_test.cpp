// SPDX-License-Identifier: Apache-2.0
// layout.hpp says what docs/format.md says: every weight has its own bits in a tile, and the decode
// rule of the kernels gives back scaled weights.
#include "format/layout.hpp"
#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <set>
#include <tuple>
#include <vector>

namespace slimgemm::format {
namespace {

// Section 1.
static_assert(offsetof(Header, magic) == 0 && offsetof(Header, version) == 8);
static_assert(offsetof(Header, encoding) == 12 && offsetof(Header, n) == 16);
static_assert(offsetof(Header, k) == 24 && offsetof(Header, window_base) == 32);
static_assert(offsetof(Header, flags) == 36 && offsetof(Header, exception_count) == 40);
static_assert(offsetof(Header, tiles_offset) == 48 && offsetof(Header, tiles_bytes) == 56);
static_assert(offsetof(Header, groups_offset) == 64 && offsetof(Header, group_count) == 72);
static_assert(offsetof(Header, extra_offset) == 80 && offsetof(Header, total_bytes) == 88);
static_assert(offsetof(Header, payload_xxh3) == 96 && offsetof(Header, header_xxh3) == 104);
static_assert(offsetof(Header, reserved) == 112 && sizeof(Header) == 128);
// Section 2.
static_assert(split12_tile_bytes == 1536 && raw16_tile_bytes == 2048 && raw32_tile_bytes == 4096);
// Section 4.
static_assert(offsetof(ExceptionEntry, k) == 0 && offsetof(ExceptionEntry, bits) == 4);
static_assert(offsetof(ExceptionEntry, row) == 6 && offsetof(ExceptionEntry, zero) == 7);

void for_each_weight(const std::function<void(int row, int k)>& call) {
  for (int row = 0; row < tile_rows; ++row) {
    for (int k = 0; k < tile_k; ++k) call(row, k);
  }
}

TEST(FormatLayout, MagicReadsAsText) {
  char text[8];
  std::memcpy(text, &magic, sizeof(text));
  EXPECT_EQ(std::string(text, 8), "SLIMPACK");
}

TEST(FormatLayout, TilesAlong) {
  EXPECT_EQ(tiles_along(1, 16), 1U);
  EXPECT_EQ(tiles_along(16, 16), 1U);
  EXPECT_EQ(tiles_along(17, 16), 2U);
  EXPECT_EQ(tiles_along((std::uint64_t{1} << 31) - 1, 64), std::uint64_t{1} << 25);
}

// The PTX description of the A fragment of mma.m16n8k16 (row-major, 16-bit): register pair a0,a1 at
// (group, 2 * in_group), a2,a3 eight rows below, a4,a5 eight columns right, a6,a7 both.
TEST(FormatLayout, SlotsAreTensorCoreFragments) {
  for_each_weight([](int row, int k) {
    const FragmentSlot s = fragment_slot(row, k);
    const int group = s.lane / 4;
    const int in_group = s.lane % 4;
    const bool below = s.index == 2 || s.index == 3 || s.index == 6 || s.index == 7;
    const bool right = s.index >= 4;
    EXPECT_EQ(row, group + (below ? 8 : 0));
    EXPECT_EQ(k, 16 * s.fragment + 2 * in_group + s.index % 2 + (right ? 8 : 0));
  });
}

// How often each of a number of bits is used.
class Uses {
 public:
  explicit Uses(std::size_t bits) : uses_(bits) {}
  void mark(std::size_t first_bit, std::size_t bits) {
    for (std::size_t bit = 0; bit < bits; ++bit) ++uses_.at(first_bit + bit);
  }
  [[nodiscard]] bool all_once() const {
    return std::ranges::all_of(uses_, [](int n) { return n == 1; });
  }

 private:
  std::vector<int> uses_;
};

TEST(FormatLayout, EveryWeightHasItsOwnBits) {
  std::set<std::tuple<int, int, int>> slots;
  Uses split12(std::size_t{split12_tile_bytes} * 8);
  Uses raw16(std::size_t{raw16_tile_bytes} * 8);
  Uses raw32(std::size_t{raw32_tile_bytes} * 8);
  for_each_weight([&](int row, int k) {
    const FragmentSlot s = fragment_slot(row, k);
    slots.insert({s.fragment, s.lane, s.index});
    split12.mark(8 * low_byte_offset(s), 8);
    const std::uint32_t nibble = nibble_bits(s.index, 1, 7);
    EXPECT_EQ(std::popcount(nibble), 4);
    for (int bit = 0; bit < 32; ++bit) {
      if ((nibble >> bit & 1) != 0) split12.mark(8 * nibble_word_offset(s) + bit, 1);
    }
    raw16.mark(8 * raw16_offset(s), 16);
    raw32.mark(8 * raw32_offset(s), 32);
  });
  EXPECT_EQ(slots.size(), static_cast<std::size_t>(tile_weights));
  EXPECT_TRUE(split12.all_once());
  EXPECT_TRUE(raw16.all_once());
  EXPECT_TRUE(raw32.all_once());
}

TEST(FormatLayout, NibblesComeOutAsTheKernelsTakeThem) {
  for (int index = 0; index < 8; ++index) {
    for (std::uint32_t sign = 0; sign < 2; ++sign) {
      for (std::uint32_t code = 0; code < 8; ++code) {
        const std::uint32_t word = nibble_bits(index, sign, code);
        const std::uint32_t high = (index < 4 ? word : std::rotl(word, 4)) & 0x87878787;
        EXPECT_EQ(high, (sign << 7 | code) << (8 * (index % 4)));
      }
    }
  }
}

// Section 3: the same word as the table of bits in docs/format.md puts it.
TEST(FormatLayout, NibblesLieWhereTheTableSays) {
  for (int b = 0; b < 4; ++b) {
    EXPECT_EQ(nibble_bits(b, 1, 0), 0x80U << (8 * b));
    EXPECT_EQ(nibble_bits(b, 0, 7), 0x07U << (8 * b));
    EXPECT_EQ(nibble_bits(4 + b, 1, 0), 0x08U << (8 * b));
    EXPECT_EQ(nibble_bits(4 + b, 0, 7), 0x70U << (8 * ((b + 3) % 4)));
  }
}

TEST(FormatLayout, KernelsDecodeEveryBit) {
  for (int base = 0; base <= max_window_base; base += 2) {
    for (int e = base; e < base + window_exponents; ++e) {
      for (const bool negative : {false, true}) {
        const std::uint16_t bits = test::bf16_bits(negative, static_cast<unsigned>(e), 0x55);
        const std::uint32_t sign_code =
            (bits >> 8 & 0x80U) | static_cast<std::uint32_t>((e >> 1) - (base >> 1));
        EXPECT_EQ(high_byte(sign_code, base) << 8 | (bits & 0xFF), bits) << base;
      }
    }
  }
}

}  // namespace
}  // namespace slimgemm::format
