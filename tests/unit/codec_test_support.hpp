// SPDX-License-Identifier: Apache-2.0
// Weights to pack and packed bytes to break, shared by the tests of codec and format.
#pragma once

#include <slimgemm/packed.hpp>

#include "codec/checksum.hpp"
#include "format/layout.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

namespace slimgemm::test {

using Bf16Vector = std::vector<std::uint16_t>;
using Bytes = std::vector<std::byte>;

constexpr std::uint16_t bf16_bits(unsigned sign, unsigned exponent, unsigned mantissa) {
  return static_cast<std::uint16_t>(sign << 15 | exponent << 7 | mantissa);
}

/// Weights of which about `exception_rate` have any of the 65,536 bit patterns and the others one
/// of the 16 exponents from window_base on.
inline Bf16Vector mixed_weights(std::size_t size, int window_base, double exception_rate,
                                std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Bf16Vector w(size);
  for (std::uint16_t& bits : w) {
    const std::uint64_t r = random();
    if (static_cast<double>(r >> 40) < exception_rate * 0x1p24) {
      bits = static_cast<std::uint16_t>(r);
    } else {
      bits = bf16_bits(r & 1, static_cast<unsigned>(window_base) + (r >> 1 & 15), r >> 5 & 127);
    }
  }
  return w;
}

inline Bytes copy_bytes(const PackedMatrix& packed) {
  return {packed.bytes().begin(), packed.bytes().end()};
}

inline bool same_bytes(const PackedMatrix& a, const PackedMatrix& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

inline format::Header header_of(std::span<const std::byte> bytes) {
  format::Header header{};
  std::memcpy(&header, bytes.data(), std::min(bytes.size(), sizeof(header)));
  return header;
}

/// Sets the header of `bytes`, and, where its flags ask for checksums and this build has them, both
/// checksums so that they are right.
inline void seal(Bytes& bytes, format::Header header) {
  if ((header.flags & format::has_checksums) != 0) {
    header.payload_xxh3 = checksum(std::span<const std::byte>(bytes).subspan(sizeof(header)));
    header.header_xxh3 =
        checksum(std::as_bytes(std::span(&header, 1)).first(offsetof(format::Header, header_xxh3)));
  }
  std::memcpy(bytes.data(), &header, sizeof(header));
}

/// The same with the header that the bytes have.
inline void seal(Bytes& bytes) { seal(bytes, header_of(bytes)); }

}  // namespace slimgemm::test
