// SPDX-License-Identifier: Apache-2.0
// The matrices behind the golden files: plain formulas, so that anyone can write them again in any
// language. write_golden.cpp packs them, format_golden_test.cpp compares.
#pragma once

#include <slimgemm/packed.hpp>

#include "unit/codec_test_support.hpp"

#include <bit>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace slimgemm::golden {

struct GoodFile {
  std::string name;
  std::int64_t n;
  std::int64_t k;
  DType dtype;
  PackOptions options;
  std::function<std::uint32_t(std::uint32_t i)> bits;  // of element i, row-major
};

// 32-bit multiplicative hash: Knuth's constant, upper bits first.
inline std::uint32_t hash(std::uint32_t i) {
  const std::uint32_t x = (i + 1) * 2654435761U;
  return x ^ x >> 15;
}

// Exponents 112 to 127, any sign and mantissa.
inline std::uint32_t in_window(std::uint32_t i) {
  const std::uint32_t h = hash(i);
  return test::bf16_bits(h >> 31, 112 + (h >> 7 & 15), h & 127);
}

inline std::vector<GoodFile> good_files() {
  const PackOptions split{.max_exception_rate = 1};
  return {
      {"split12_one_tile", 16, 64, DType::bf16, split, in_window},
      // Every 29th weight has any bit pattern: enough for a second group in row tile 0.
      {"split12_edges", 19, 70, DType::bf16, split,
       [](std::uint32_t i) { return i % 29 == 0 ? hash(i) >> 16 : in_window(i); }},
      // Zeros, subnormals and the smallest normal numbers: window base 0.
      {"split12_base_0", 5, 7, DType::bf16, split,
       [](std::uint32_t i) { return (i % 2) << 15 | i * 16; }},
      {"split12_all_zero", 3, 9, DType::bf16, split, [](std::uint32_t) { return 0U; }},
      {"raw16_any_bits", 17, 65, DType::bf16, {}, [](std::uint32_t i) { return hash(i) >> 16; }},
      {"raw32_any_bits", 3, 66, DType::f32, {}, hash},
  };
}

inline std::vector<std::uint32_t> elements(const GoodFile& file) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(file.n * file.k));
  for (std::uint32_t i = 0; i < bits.size(); ++i) bits[i] = file.bits(i);
  return bits;
}

inline PackedMatrix pack_elements(const GoodFile& file) {
  if (file.dtype == DType::f32) {
    std::vector<float> w;
    for (const std::uint32_t bits : elements(file)) w.push_back(std::bit_cast<float>(bits));
    return pack(w, file.n, file.k, file.options);
  }
  test::Bf16Vector w;
  for (const std::uint32_t bits : elements(file)) w.push_back(static_cast<std::uint16_t>(bits));
  return pack(w, file.n, file.k, file.options);
}

// A file that a reader refuses: a good one with a change, its checksums made right again if `seal`.
struct BadFile {
  std::string name;
  std::string good;
  std::string error;  // part of the message
  bool seal;
  std::function<void(test::Bytes&, format::Header&)> change;
};

inline std::vector<BadFile> bad_files() {
  using format::Header;
  using test::Bytes;
  return {
      {"bad_magic", "split12_one_tile", "magic", false, [](Bytes&, Header& h) { h.magic ^= 0x20; }},
      {"bad_version", "split12_one_tile", "version = 2", true,
       [](Bytes&, Header& h) { h.version = 2; }},
      {"bad_truncated", "split12_one_tile", "cut short", false,
       [](Bytes& bytes, Header&) { bytes.resize(bytes.size() - 4); }},
      {"bad_payload_checksum", "split12_one_tile", "payload_xxh3", false,
       [](Bytes& bytes, Header&) { bytes[1000] ^= std::byte{4}; }},
      {"bad_window_base", "split12_one_tile", "window_base = 113", true,
       [](Bytes&, Header& h) { h.window_base = 113; }},
      {"bad_huge_n", "raw16_any_bits", "tiles_bytes", true,
       [](Bytes&, Header& h) { h.n = max_dimension; }},
      {"bad_tile_padding", "raw16_any_bits", "padding", true,
       [](Bytes& bytes, Header&) { bytes[256 + 2048 + 15] = std::byte{1}; }},
      {"bad_entry_row", "split12_edges", "row = 16", true,
       [](Bytes& bytes, Header& h) { bytes[h.groups_offset + 6] = std::byte{16}; }},
      {"bad_entry_order", "split12_edges", "sorted by (k, row)", true,
       [](Bytes& bytes, Header& h) {
         for (std::size_t i = 0; i < 8; ++i) {
           std::swap(bytes[h.groups_offset + i], bytes[h.groups_offset + 8 + i]);
         }
       }},
  };
}

// The bytes of a bad file, made from those of its good one.
inline test::Bytes spoil(const BadFile& bad, test::Bytes bytes) {
  format::Header header = test::header_of(bytes);
  bad.change(bytes, header);
  if (bad.seal) {
    test::seal(bytes, header);
  } else {
    std::memcpy(bytes.data(), &header, sizeof(header));
  }
  return bytes;
}

}  // namespace slimgemm::golden
