// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace slimgemm {

/// Element type of a weight matrix and of the result of its layer.
/// Activations (x) are always BF16; BF16 values are passed as their raw 16 bits.
enum class DType : std::uint32_t {
  bf16 = 1,  ///< 16-bit brain float: 1 sign, 8 exponent, 7 mantissa bits
  f32 = 2,   ///< IEEE-754 binary32
};

/// Bytes of one element.
constexpr std::int64_t size_bytes(DType dtype) { return dtype == DType::bf16 ? 2 : 4; }

/// "bf16" or "f32".
constexpr const char* name(DType dtype) { return dtype == DType::bf16 ? "bf16" : "f32"; }

/// How the weights of a packed matrix are stored (docs/format.md).
enum class Encoding : std::uint32_t {
  split12 = 1,  ///< BF16 in 12 bits: low byte + (sign, 3 exponent bits), exceptions beside
  raw16 = 2,    ///< BF16 as it is, in tile order: for tensors with too many exceptions
  raw32 = 3,    ///< FP32 as it is, in tile order
};

/// "split12", "raw16" or "raw32".
constexpr const char* name(Encoding encoding) {
  switch (encoding) {
    case Encoding::split12:
      return "split12";
    case Encoding::raw16:
      return "raw16";
    case Encoding::raw32:
      return "raw32";
  }
  return "unknown";
}

/// Where a Linear computes.
enum class Device : std::uint32_t {
  cpu = 1,
  cuda = 2,
};

/// Largest value that N, K and m may take: indices of a dimension fit a signed 32-bit integer.
constexpr std::int64_t max_dimension = (std::int64_t{1} << 31) - 1;

}  // namespace slimgemm
