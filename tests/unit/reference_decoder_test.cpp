// SPDX-License-Identifier: Apache-2.0
// The reference decoder on bytes written by hand from docs/format.md, so that it rests on the page
// and not on the packer.
#include "codec/reference_decoder.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace slimgemm::reference {
namespace {

class PackedBytes {
 public:
  PackedBytes(unsigned encoding, unsigned n, unsigned k, std::size_t size) : bytes_(size) {
    const std::string magic = "SLIMPACK";
    for (std::size_t i = 0; i < magic.size(); ++i) put(i, static_cast<unsigned char>(magic[i]));
    put(8, 1);
    put(12, encoding);
    put(16, n);
    put(24, k);
    put16(48, 256);  // tiles_offset
  }
  void put(std::size_t offset, unsigned value) {
    bytes_.at(offset) = static_cast<std::byte>(value);
  }
  void put16(std::size_t offset, unsigned value) {
    put(offset, value & 0xFF);
    put(offset + 1, value >> 8);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// One row of 64: the weight at k = 25 is in fragment 1 (k16 = 9), lane 4 * 0 + (9 % 8) / 2 = 0,
// index 4 * 1 + 0 + 1 = 5.
TEST(ReferenceDecoder, Raw16) {
  PackedBytes p(2, 1, 64, 256 + 2048);
  p.put16(256 + 512 * 1 + 16 * 0 + 2 * 5, 0xABCD);
  const Decoded d = decode(p.bytes());
  ASSERT_EQ(d.bf16.size(), 64U);
  for (std::size_t k = 0; k < 64; ++k) EXPECT_EQ(d.bf16[k], k == 25 ? 0xABCD : 0) << k;
  EXPECT_TRUE(d.f32.empty());
}

// Row 13, k = 6: fragment 0, lane 4 * 5 + 3 = 23, index 0 + 2 + 0 = 2; plane 2 * 0 + 0.
TEST(ReferenceDecoder, Raw32) {
  PackedBytes p(3, 16, 64, 256 + 4096);
  p.put16(256 + 16 * 23 + 4 * 2, 0x0002);
  p.put16(256 + 16 * 23 + 4 * 2 + 2, 0x7F80);
  const Decoded d = decode(p.bytes());
  ASSERT_EQ(d.f32.size(), 16U * 64);
  for (std::size_t i = 0; i < d.f32.size(); ++i) {
    EXPECT_EQ(d.f32[i], i == 13 * 64 + 6 ? 0x7F800002U : 0U) << i;
  }
}

// A 16 x 64 tile with window base 120. Zero bits are +2^(120 - 127): 0x3C00.
TEST(ReferenceDecoder, Split12) {
  PackedBytes p(1, 16, 64, 256 + 1536 + 256 + 8);
  p.put(32, 120);
  p.put16(64, 256 + 1536);        // groups_offset
  p.put16(72, 1);                 // group_count
  p.put16(80, 256 + 1536 + 256);  // extra_offset
  // Row 0, k = 49: fragment 3, lane 0, index 1. s = 1, c = 5, low byte 0x91: the exponent's upper
  // seven bits are 60 + 5 = 65 = 0x41.
  p.put(256 + 512 + 8 + 1, 0x91);
  p.put(256 + 1024 + 4 * 3 + 1, 0x80 | 5);
  // Row 2, k = 12: fragment 0, lane 4 * 2 + 2 = 10, index 4. s = 1 (bit 3 of byte 0), c = 3 (bits
  // 6..4 of byte 3).
  p.put(256 + 1024 + 16 * 10 + 0, 0x08);
  p.put(256 + 1024 + 16 * 10 + 3, 0x30);
  // One exception: row 15, k = 63, NaN 0x7FC1; 15 empty slots.
  for (std::size_t slot = 1; slot < 16; ++slot) p.put(256 + 1536 + 8 * slot + 6, 0xFF);
  p.put(256 + 1536, 63);
  p.put16(256 + 1536 + 4, 0x7FC1);
  p.put(256 + 1536 + 6, 15);
  const Decoded d = decode(p.bytes());
  ASSERT_EQ(d.bf16.size(), 16U * 64);
  for (std::size_t i = 0; i < d.bf16.size(); ++i) {
    unsigned wanted = 0x3C00;
    if (i == 49) wanted = 0xC191;
    if (i == 2 * 64 + 12) wanted = 0xBF00;
    if (i == 15 * 64 + 63) wanted = 0x7FC1;
    EXPECT_EQ(d.bf16[i], wanted) << i;
  }
}

TEST(ReferenceDecoder, RefusesWhatItCannotRead) {
  const PackedBytes good(2, 16, 64, 256 + 2048);
  EXPECT_NO_THROW(decode(good.bytes()));
  EXPECT_THROW(decode({}), std::runtime_error);
  EXPECT_THROW(decode(PackedBytes(2, 16, 64, 256 + 2047).bytes()), std::runtime_error);
  EXPECT_THROW(decode(PackedBytes(4, 16, 64, 256 + 2048).bytes()), std::runtime_error);
  PackedBytes version(2, 16, 64, 256 + 2048);
  version.put(8, 2);
  EXPECT_THROW(decode(version.bytes()), std::runtime_error);
  PackedBytes magic(2, 16, 64, 256 + 2048);
  magic.put(0, 'X');
  EXPECT_THROW(decode(magic.bytes()), std::runtime_error);
}

}  // namespace
}  // namespace slimgemm::reference
