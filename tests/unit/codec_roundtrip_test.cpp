// SPDX-License-Identifier: Apache-2.0
// What goes in comes out, bit for bit, through unpack() and through the reference decoder.
#include <slimgemm/packed.hpp>

#include "codec/reference_decoder.hpp"
#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

using test::Bf16Vector;

constexpr PackOptions always_split{.threads = 2, .max_exception_rate = 1.0};
constexpr PackOptions defaults{.threads = 2};

// Packs, decodes in both ways, reads the bytes back, and returns the packed matrix.
PackedMatrix expect_round_trip(const Bf16Vector& w, std::int64_t n, std::int64_t k,
                               const PackOptions& options) {
  SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(k));
  PackedMatrix packed = pack(w, n, k, options);
  EXPECT_EQ(packed.n(), n);
  EXPECT_EQ(packed.k(), k);
  EXPECT_EQ(packed.dtype(), DType::bf16);
  Bf16Vector out(w.size(), 0x1234);
  unpack(packed, out, options.threads);
  EXPECT_TRUE(out == w) << "unpack";
  const reference::Decoded decoded = reference::decode(packed.bytes());
  EXPECT_EQ(decoded.n, static_cast<std::uint64_t>(n));
  EXPECT_EQ(decoded.k, static_cast<std::uint64_t>(k));
  EXPECT_TRUE(decoded.bf16 == w) << "reference decoder";
  EXPECT_TRUE(test::same_bytes(PackedMatrix::from_bytes(packed.bytes()), packed));
  return packed;
}

// The same for FP32 weights, given as bits.
PackedMatrix expect_round_trip32(const std::vector<std::uint32_t>& bits, std::int64_t n,
                                 std::int64_t k) {
  SCOPED_TRACE("n = " + std::to_string(n) + ", k = " + std::to_string(k));
  std::vector<float> w(bits.size());
  std::memcpy(w.data(), bits.data(), bits.size() * sizeof(float));
  PackedMatrix packed = pack(w, n, k, defaults);
  EXPECT_EQ(packed.encoding(), Encoding::raw32);
  EXPECT_EQ(packed.dtype(), DType::f32);
  std::vector<float> out(w.size(), -1.0F);
  unpack(packed, out, 2);
  EXPECT_EQ(std::memcmp(out.data(), bits.data(), bits.size() * sizeof(float)), 0) << "unpack";
  EXPECT_TRUE(reference::decode(packed.bytes()).f32 == bits) << "reference decoder";
  EXPECT_TRUE(test::same_bytes(PackedMatrix::from_bytes(packed.bytes()), packed));
  return packed;
}

bool has_nonfinite_flag(const PackedMatrix& packed) {
  return (test::header_of(packed.bytes()).flags & format::has_nonfinite) != 0;
}

// Sizes around the tile's and the fragment's edges, and some that divide nothing.
constexpr std::int64_t odd_sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 47, 63, 64, 65, 70};

TEST(CodecRoundTrip, EveryBitPattern) {
  Bf16Vector w(65536);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::uint16_t>(i);
  for (const std::int64_t k : {1, 64, 256, 65536}) {
    EXPECT_EQ(expect_round_trip(w, 65536 / k, k, defaults).encoding(), Encoding::raw16);
    const PackedMatrix split = expect_round_trip(w, 65536 / k, k, always_split);
    EXPECT_EQ(split.encoding(), Encoding::split12);
    // All windows but base 0 cover 16 of 256 exponents; the last of them is taken.
    EXPECT_EQ(split.window_base(), 238);
    EXPECT_EQ(split.exception_count(), 65536 - 65536 / 16);
    EXPECT_TRUE(has_nonfinite_flag(split));
  }
}

TEST(CodecRoundTrip, EveryWindowPosition) {
  for (int base = 0; base <= format::max_window_base; base += 2) {
    const Bf16Vector w =
        test::mixed_weights(std::size_t{40} * 70, base, 0.02, static_cast<std::uint64_t>(base));
    const PackedMatrix packed = expect_round_trip(w, 40, 70, always_split);
    EXPECT_EQ(packed.encoding(), Encoding::split12);
    EXPECT_EQ(packed.window_base(), base);
    EXPECT_GT(packed.exception_count(), 0);
  }
}

TEST(CodecRoundTrip, EveryMixOfOddSizes) {
  for (const std::int64_t n : odd_sizes) {
    for (const std::int64_t k : odd_sizes) {
      const auto size = static_cast<std::size_t>(n * k);
      const Bf16Vector w = test::mixed_weights(size, 110, 0.01, size);
      expect_round_trip(w, n, k, always_split);
      expect_round_trip(w, n, k, {.threads = 2, .max_exception_rate = 0});
    }
  }
}

TEST(CodecRoundTrip, LongAndThin) {
  for (const auto& [n, k] : {std::pair{1, 5000}, {5000, 1}, {1, 4096}, {4096, 1}, {3, 3333}}) {
    const auto size = static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
    expect_round_trip(test::mixed_weights(size, 120, 0.05, 7), n, k, always_split);
  }
}

TEST(CodecRoundTrip, ManyExceptionsAreStoredRaw) {
  const Bf16Vector w = test::mixed_weights(std::size_t{100} * 200, 100, 0.4, 3);
  const PackedMatrix packed = expect_round_trip(w, 100, 200, defaults);
  EXPECT_EQ(packed.encoding(), Encoding::raw16);
  EXPECT_EQ(packed.exception_count(), 0);
  EXPECT_EQ(packed.window_base(), 0);
}

TEST(CodecRoundTrip, ManyExceptionsCanBeKeptBeside) {
  for (const double rate : {0.4, 1.0}) {
    const Bf16Vector w = test::mixed_weights(std::size_t{100} * 200, 100, rate, 4);
    const PackedMatrix packed = expect_round_trip(w, 100, 200, always_split);
    EXPECT_EQ(packed.encoding(), Encoding::split12);
    EXPECT_GT(packed.exception_count(), 100 * 200 * 3 / 10);
  }
}

// Exceptions in numbers around those that fill one, two and three groups of a row tile.
TEST(CodecRoundTrip, GroupsFillFrontToBack) {
  for (const std::size_t count : {0, 1, 15, 16, 17, 31, 32, 33, 48, 49}) {
    Bf16Vector w = test::mixed_weights(std::size_t{33} * 100, 100, 0, 5);
    for (std::size_t i = 0; i < count; ++i) w[i * 31] = 0;  // rows 0..15
    const PackedMatrix packed = expect_round_trip(w, 33, 100, always_split);
    EXPECT_EQ(packed.exception_count(), static_cast<std::int64_t>(count));
    const std::uint64_t extra = count <= 16 ? 0 : (count - 1) / 16;
    EXPECT_EQ(test::header_of(packed.bytes()).group_count, 3 + extra);
  }
}

TEST(CodecRoundTrip, SpecialValuesAlone) {
  const std::uint16_t specials[] = {
      0x0000, 0x8000,                          // zeros
      0x0001, 0x007F, 0x8001, 0x807F,          // subnormals
      0x0080, 0x7F7F, 0xFF7F,                  // smallest normal, largest
      0x7F80, 0xFF80,                          // infinities
      0x7F81, 0x7FC0, 0x7FFF, 0xFF81, 0xFFFF,  // NaNs, signalling and quiet, with payload
  };
  for (const std::uint16_t bits : specials) {
    const Bf16Vector w(std::size_t{18} * 66, bits);
    const bool nonfinite = (bits & 0x7F80) == 0x7F80;
    EXPECT_EQ(has_nonfinite_flag(expect_round_trip(w, 18, 66, defaults)), nonfinite) << bits;
    EXPECT_EQ(has_nonfinite_flag(expect_round_trip(w, 18, 66, always_split)), nonfinite) << bits;
  }
}

TEST(CodecRoundTrip, AllZerosAreExceptions) {
  const PackedMatrix packed = expect_round_trip(Bf16Vector(1000, 0), 10, 100, always_split);
  EXPECT_EQ(packed.exception_count(), 1000);
  EXPECT_EQ(packed.window_base(), format::max_window_base);
}

TEST(CodecRoundTrip, Float32OddSizes) {
  for (const std::int64_t n : odd_sizes) {
    for (const std::int64_t k : odd_sizes) {
      std::mt19937 random(static_cast<unsigned>(n * 100 + k));
      std::vector<std::uint32_t> bits(static_cast<std::size_t>(n * k));
      std::ranges::generate(bits, random);
      expect_round_trip32(bits, n, k);
    }
  }
}

TEST(CodecRoundTrip, Float32SpecialValues) {
  // Zeros, subnormals, infinities, and NaNs with every payload bit in turn.
  std::vector<std::uint32_t> bits = {0, 0x80000000, 1, 0x807FFFFF, 0x7F800000, 0xFF800000};
  EXPECT_TRUE(has_nonfinite_flag(expect_round_trip32(bits, 2, 3)));
  bits.resize(4);
  EXPECT_FALSE(has_nonfinite_flag(expect_round_trip32(bits, 1, 4)));
  for (int bit = 0; bit < 23; ++bit) {
    bits = {0x3F800000, 0x7F800000U | 1U << bit, 0xFF800000U | 1U << bit};
    EXPECT_TRUE(has_nonfinite_flag(expect_round_trip32(bits, 3, 1)));
  }
}

TEST(CodecRoundTrip, BytesDoNotDependOnTheThreads) {
  const Bf16Vector w = test::mixed_weights(std::size_t{500} * 300, 100, 0.01, 9);
  std::vector<float> f(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) f[i] = static_cast<float>(w[i]) * 0.37F;
  for (const double rate : {0.0, 1.0}) {
    const PackedMatrix one = pack(w, 500, 300, {.threads = 1, .max_exception_rate = rate});
    for (const int threads : {0, 2, 3, 7, 16}) {
      const PackedMatrix many = pack(w, 500, 300, {.threads = threads, .max_exception_rate = rate});
      EXPECT_TRUE(test::same_bytes(one, many)) << threads;
      Bf16Vector out(w.size());
      unpack(many, out, threads);
      EXPECT_TRUE(out == w) << threads;
    }
  }
  EXPECT_TRUE(
      test::same_bytes(pack(f, 500, 300, {.threads = 1}), pack(f, 500, 300, {.threads = 5})));
}

TEST(CodecRoundTrip, BitsPerWeight) {
  const Bf16Vector w = test::mixed_weights(std::size_t{1024} * 1024, 100, 0, 1);
  EXPECT_NEAR(pack(w, 1024, 1024).bits_per_weight(), 12.0, 0.1);
  EXPECT_NEAR(pack(w, 1024, 1024, {.max_exception_rate = 0}).bits_per_weight(), 12.0, 0.1);
  const Bf16Vector zeros(w.size(), 0);
  EXPECT_NEAR(pack(zeros, 1024, 1024).bits_per_weight(), 16.0, 0.1);
}

TEST(CodecRoundTrip, CopiesShareTheBytes) {
  const PackedMatrix packed = pack(Bf16Vector(64, 0x3F80), 8, 8);
  const PackedMatrix copy = packed;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_EQ(copy.bytes().data(), packed.bytes().data());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(packed.bytes().data()) % 256, 0U);
}

}  // namespace
}  // namespace slimgemm
