// SPDX-License-Identifier: Apache-2.0
// What the codec refuses, and that it says why.
#include <slimgemm/packed.hpp>

#include "support/aligned_buffer.hpp"
#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#if defined(__has_feature)
#define SLIMGEMM_HAS_FEATURE(x) __has_feature(x)
#else
#define SLIMGEMM_HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || SLIMGEMM_HAS_FEATURE(address_sanitizer)
#define SLIMGEMM_SANITIZED 1
#else
#define SLIMGEMM_SANITIZED 0
#endif

namespace slimgemm {
namespace {

// Runs `call`, which must throw Error(code) with all of `parts` in its message.
void expect_error(ErrorCode code, const std::vector<std::string>& parts,
                  const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error for " << parts.front();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    for (const std::string& part : parts) {
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
          << "\"" << part << "\" is not in \"" << e.what() << "\"";
    }
  }
}

TEST(CodecArguments, DimensionsOutOfRange) {
  const std::vector<std::uint16_t> w(16);
  const std::vector<float> f(16);
  for (const std::int64_t bad :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    const std::string value = std::to_string(bad);
    const auto refused = ErrorCode::invalid_argument;
    expect_error(refused, {"n = " + value, "2147483647"}, [&] { pack(w, bad, 16); });
    expect_error(refused, {"k = " + value, "2147483647"}, [&] { pack(w, 1, bad); });
    expect_error(refused, {"n = " + value, "2147483647"}, [&] { pack(f, bad, 1); });
    expect_error(refused, {"k = " + value, "2147483647"}, [&] { pack(f, 16, bad); });
  }
}

TEST(CodecArguments, SizeThatIsNotTheProduct) {
  const std::vector<std::uint16_t> w(17);
  const std::vector<float> f(15);
  expect_error(ErrorCode::invalid_argument, {"17", "4 * 4 = 16"}, [&] { pack(w, 4, 4); });
  expect_error(ErrorCode::invalid_argument, {"15", "4 * 4 = 16"}, [&] { pack(f, 4, 4); });
  // The product of the largest dimensions is computed without overflow.
  expect_error(ErrorCode::invalid_argument, {"4611686014132420609"},
               [&] { pack(w, max_dimension, max_dimension); });
}

TEST(CodecArguments, OptionsOutOfRange) {
  const std::vector<std::uint16_t> w(16);
  const auto refused = ErrorCode::invalid_argument;
  for (const double rate : {-0.1, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    expect_error(refused, {"max_exception_rate = ", "0 to 1"},
                 [&] { pack(w, 4, 4, {.max_exception_rate = rate}); });
  }
  expect_error(refused, {"threads = -2"}, [&] { pack(w, 4, 4, {.threads = -2}); });
}

TEST(CodecArguments, UnpackIntoTheWrongPlace) {
  const PackedMatrix bf16 = pack(std::vector<std::uint16_t>(12, 0x3F80), 3, 4);
  const PackedMatrix f32 = pack(std::vector<float>(12), 3, 4);
  std::vector<std::uint16_t> out16(12);
  std::vector<float> out32(12);
  const auto refused = ErrorCode::invalid_argument;
  expect_error(refused, {"f32", "bf16"}, [&] { unpack(bf16, out32); });
  expect_error(refused, {"bf16", "f32"}, [&] { unpack(f32, out16); });
  expect_error(refused, {"threads = -1"}, [&] { unpack(bf16, out16, -1); });
  out16.resize(11);
  out32.resize(13);
  expect_error(refused, {"11", "3 * 4 = 12"}, [&] { unpack(bf16, out16); });
  expect_error(refused, {"13", "3 * 4 = 12"}, [&] { unpack(f32, out32); });
}

TEST(CodecArguments, MemoryThatIsNotThere) {
  expect_error(ErrorCode::out_of_memory, {"18446744073709551615"},
               [] { const AlignedBuffer buffer(std::numeric_limits<std::uint64_t>::max()); });
#if !SLIMGEMM_SANITIZED  // the sanitizers' allocators end the process instead
  expect_error(ErrorCode::out_of_memory, {std::to_string(std::uint64_t{1} << 62)},
               [] { const AlignedBuffer buffer(std::uint64_t{1} << 62); });
#endif
}

#if !SLIMGEMM_HAVE_CUDA
TEST(CodecArguments, NoDevicePackerInThisBuild) {
  expect_error(ErrorCode::unsupported, {"pack_cuda", "SLIMGEMM_CUDA"},
               [] { pack_cuda(nullptr, 4, 4); });
}
#endif

}  // namespace
}  // namespace slimgemm
