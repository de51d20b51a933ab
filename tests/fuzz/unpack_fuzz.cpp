// SPDX-License-Identifier: Apache-2.0
// Any bytes to from_bytes(): they are refused with Error(corrupt_data), or they are a packed matrix
// that unpack() and the reference decoder read alike.
//
// Inputs that ask for checksums get right ones, so that the fuzzer comes past them.
#include <slimgemm/packed.hpp>

#include "codec/reference_decoder.hpp"
#include "unit/codec_test_support.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using namespace slimgemm;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_matrix(const PackedMatrix& packed) {
  const reference::Decoded decoded = reference::decode(packed.bytes());
  const auto size = static_cast<std::size_t>(packed.n() * packed.k());
  if (packed.dtype() == DType::f32) {
    std::vector<float> out(size);
    unpack(packed, out, 1);
    require(decoded.f32.size() == size);
    require(std::memcmp(out.data(), decoded.f32.data(), size * sizeof(float)) == 0);
    return;
  }
  std::vector<std::uint16_t> out(size);
  unpack(packed, out, 1);
  require(out == decoded.bf16);
  // Packed again into the same encoding and window it is the same bytes.
  const bool split = packed.encoding() == Encoding::split12;
  const PackedMatrix again =
      pack(out, packed.n(), packed.k(), {.threads = 1, .max_exception_rate = split ? 1.0 : 0.0});
  if (again.encoding() != packed.encoding() || again.window_base() != packed.window_base()) return;
  test::Bytes a = test::copy_bytes(packed);
  test::Bytes b = test::copy_bytes(again);
  for (test::Bytes* bytes : {&a, &b}) {
    format::Header header = test::header_of(*bytes);
    header.flags &= ~std::uint32_t{format::has_checksums};
    header.payload_xxh3 = 0;
    header.header_xxh3 = 0;
    test::seal(*bytes, header);
  }
  require(a == b);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  test::Bytes bytes(size);
  if (size != 0) std::memcpy(bytes.data(), data, size);
  if (size >= sizeof(format::Header)) test::seal(bytes);
  try {
    check_matrix(PackedMatrix::from_bytes(bytes));
  } catch (const Error& e) {
    require(e.code() == ErrorCode::corrupt_data);
  }
  return 0;
}
