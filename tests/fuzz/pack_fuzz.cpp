// SPDX-License-Identifier: Apache-2.0
// Any weights to pack(): they come back bit for bit, and the bytes pass the reader.
//
// Input: k (one byte, 0 counts as 256), options (bit 0: FP32, bits 1..7: exception rate in steps of
// 1/64), then the weights of as many rows as there are.
#include <slimgemm/packed.hpp>

#include "codec/reference_decoder.hpp"
#include "unit/codec_test_support.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

namespace {

using namespace slimgemm;

void require(bool condition) {
  if (!condition) std::abort();
}

template <class T>
void round_trip(const std::uint8_t* data, std::size_t size, std::int64_t k,
                const PackOptions& options) {
  const auto n = static_cast<std::int64_t>(size / sizeof(T)) / k;
  if (n == 0) return;
  std::vector<T> w(static_cast<std::size_t>(n * k));
  std::memcpy(w.data(), data, w.size() * sizeof(T));
  const PackedMatrix packed = pack(w, n, k, options);
  std::vector<T> out(w.size());
  unpack(packed, out, options.threads);
  require(std::memcmp(out.data(), w.data(), w.size() * sizeof(T)) == 0);
  const reference::Decoded decoded = reference::decode(packed.bytes());
  if constexpr (std::is_same_v<T, float>) {
    require(std::memcmp(decoded.f32.data(), w.data(), w.size() * sizeof(T)) == 0);
  } else {
    require(decoded.bf16 == w);
  }
  require(test::same_bytes(PackedMatrix::from_bytes(packed.bytes()), packed));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 3) return 0;
  const std::int64_t k = data[0] == 0 ? 256 : data[0];
  const double rate = std::min(1.0, static_cast<double>(data[1] >> 1) / 64);
  const PackOptions options{.threads = 1, .max_exception_rate = rate};
  if ((data[1] & 1) != 0) {
    round_trip<float>(data + 2, size - 2, k, options);
  } else {
    round_trip<std::uint16_t>(data + 2, size - 2, k, options);
  }
  return 0;
}
