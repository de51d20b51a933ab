// SPDX-License-Identifier: Apache-2.0
// Follows docs/format.md section by section; the section numbers below are those of that page.
#include "codec/reference_decoder.hpp"

#include <stdexcept>
#include <string>

namespace slimgemm::reference {
namespace {

using Bytes = std::span<const std::byte>;

// Section 1: all integers are little-endian.
std::uint64_t read(Bytes bytes, std::uint64_t offset, int size) {
  if (offset > bytes.size() || bytes.size() - offset < static_cast<std::uint64_t>(size)) {
    throw std::runtime_error("reference decoder: byte " + std::to_string(offset) +
                             " lies beyond the end");
  }
  std::uint64_t value = 0;
  for (int i = size - 1; i >= 0; --i) {
    value = value << 8 | std::to_integer<std::uint64_t>(bytes[offset + static_cast<unsigned>(i)]);
  }
  return value;
}

// Section 1: the header fields that a decoder needs.
struct Fields {
  explicit Fields(Bytes bytes)
      : encoding(read(bytes, 12, 4)),
        n(read(bytes, 16, 8)),
        k(read(bytes, 24, 8)),
        window_base(read(bytes, 32, 4)),
        tiles_offset(read(bytes, 48, 8)),
        groups_offset(read(bytes, 64, 8)),
        extra_offset(read(bytes, 80, 8)),
        row_tiles((n + 15) / 16),
        k_tiles((k + 63) / 64) {
    const std::string magic = "SLIMPACK";
    for (std::size_t i = 0; i < magic.size(); ++i) {
      if (static_cast<char>(read(bytes, i, 1)) != magic[i]) {
        throw std::runtime_error("reference decoder: no SLIMPACK magic");
      }
    }
    if (read(bytes, 8, 4) != 1) throw std::runtime_error("reference decoder: not version 1");
  }

  std::uint64_t encoding;
  std::uint64_t n;
  std::uint64_t k;
  std::uint64_t window_base;
  std::uint64_t tiles_offset;
  std::uint64_t groups_offset;
  std::uint64_t extra_offset;
  std::uint64_t row_tiles;
  std::uint64_t k_tiles;
};

// Section 2: where a weight lies.
struct Place {
  Place(const Fields& fields, std::uint64_t n, std::uint64_t k, std::uint64_t tile_bytes) {
    const std::uint64_t row = n % 16;
    const std::uint64_t column = k % 64;
    const std::uint64_t k16 = column % 16;
    fragment = column / 16;
    lane = 4 * (row % 8) + (k16 % 8) / 2;
    index = 4 * (k16 / 8) + 2 * (row / 8) + k16 % 2;
    tile = fields.tiles_offset + (n / 16 * fields.k_tiles + k / 64) * tile_bytes;
  }
  std::uint64_t fragment;
  std::uint64_t lane;
  std::uint64_t index;
  std::uint64_t tile;  // offset of the tile in the packed bytes
};

// Section 2, raw16: plane = fragment, eight BF16 a lane.
std::uint16_t raw16_weight(Bytes bytes, const Fields& fields, std::uint64_t n, std::uint64_t k) {
  const Place p(fields, n, k, 2048);
  return static_cast<std::uint16_t>(
      read(bytes, p.tile + 512 * p.fragment + 16 * p.lane + 2 * p.index, 2));
}

// Section 2, raw32: planes 2f and 2f + 1, four FP32 a lane in each.
std::uint32_t raw32_weight(Bytes bytes, const Fields& fields, std::uint64_t n, std::uint64_t k) {
  const Place p(fields, n, k, 4096);
  const std::uint64_t plane = 2 * p.fragment + p.index / 4;
  return static_cast<std::uint32_t>(
      read(bytes, p.tile + 512 * plane + 16 * p.lane + 4 * (p.index % 4), 4));
}

// Section 3: the nibble s ccc of a weight, out of the word that a lane's eight weights share.
std::uint64_t nibble(std::uint64_t word, std::uint64_t index) {
  const auto byte = [&](std::uint64_t b) { return word >> (8 * b) & 0xFF; };
  const std::uint64_t b = index % 4;
  if (index < 4) return (byte(b) >> 7) << 3 | (byte(b) & 7);
  return (byte(b) >> 3 & 1) << 3 | (byte((b + 3) % 4) >> 4 & 7);
}

// Section 3: low byte from planes 0 and 1, nibble from plane 2; exponent = 2 * (c + base / 2) + the
// low byte's first bit.
std::uint16_t split12_weight(Bytes bytes, const Fields& fields, std::uint64_t n, std::uint64_t k) {
  const Place p(fields, n, k, 1536);
  const std::uint64_t low = read(
      bytes, p.tile + 512 * (p.fragment / 2) + 16 * p.lane + 8 * (p.fragment % 2) + p.index, 1);
  const std::uint64_t word = read(bytes, p.tile + 1024 + 16 * p.lane + 4 * p.fragment, 4);
  const std::uint64_t s_ccc = nibble(word, p.index);
  const std::uint64_t sign = s_ccc >> 3;
  const std::uint64_t upper_exponent = (s_ccc & 7) + fields.window_base / 2;
  return static_cast<std::uint16_t>(sign << 15 | upper_exponent << 8 | low);
}

// Section 4: one group of a row tile replaces stand-ins by the true weights.
void apply_group(Bytes bytes, const Fields& fields, std::uint64_t row_tile, std::uint64_t group,
                 std::vector<std::uint16_t>& weights) {
  for (std::uint64_t slot = 0; slot < 16; ++slot) {
    const std::uint64_t entry = fields.groups_offset + 128 * group + 8 * slot;
    const std::uint64_t row = read(bytes, entry + 6, 1);
    if (row == 0xFF) continue;
    const std::uint64_t k = read(bytes, entry, 4);
    weights.at((row_tile * 16 + row) * fields.k + k) =
        static_cast<std::uint16_t>(read(bytes, entry + 4, 2));
  }
}

void apply_exceptions(Bytes bytes, const Fields& fields, std::vector<std::uint16_t>& weights) {
  for (std::uint64_t r = 0; r < fields.row_tiles; ++r) {
    apply_group(bytes, fields, r, r, weights);
    const std::uint64_t begin = read(bytes, fields.extra_offset + 4 * r, 4);
    const std::uint64_t end = read(bytes, fields.extra_offset + 4 * (r + 1), 4);
    for (std::uint64_t g = begin; g < end; ++g) {
      apply_group(bytes, fields, r, fields.row_tiles + g, weights);
    }
  }
}

}  // namespace

Decoded decode(Bytes bytes) {
  const Fields fields(bytes);
  Decoded out;
  out.n = fields.n;
  out.k = fields.k;
  for (std::uint64_t n = 0; n < fields.n; ++n) {
    for (std::uint64_t k = 0; k < fields.k; ++k) {
      switch (fields.encoding) {
        case 1:
          out.bf16.push_back(split12_weight(bytes, fields, n, k));
          break;
        case 2:
          out.bf16.push_back(raw16_weight(bytes, fields, n, k));
          break;
        case 3:
          out.f32.push_back(raw32_weight(bytes, fields, n, k));
          break;
        default:
          throw std::runtime_error("reference decoder: unknown encoding");
      }
    }
  }
  if (fields.encoding == 1) apply_exceptions(bytes, fields, out.bf16);
  return out;
}

}  // namespace slimgemm::reference
