// SPDX-License-Identifier: Apache-2.0
// One 16 x 64 tile between row-major weights and its planes (docs/format.md, sections 2 and 3).
//
// A lane's eight weights of a fragment are four pairs along k, at (row, k), (row + 8, k),
// (row, k + 8) and (row + 8, k + 8): 32-bit words a, b, c and d. The loops below run over the 32
// lanes in plain integer arithmetic, four bytes at a time, so that the compiler vectorises them.
#pragma once

#include "format/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace slimgemm::codec {

// The words of all lanes for one fragment of BF16 weights.
struct alignas(64) FragmentWords {
  std::uint32_t a[format::lanes];
  std::uint32_t b[format::lanes];
  std::uint32_t c[format::lanes];
  std::uint32_t d[format::lanes];
};

inline constexpr int words_per_row = 4;  // lanes 4r .. 4r + 3 share row r

inline void load_fragment(const std::uint16_t* rows, std::size_t stride, int fragment,
                          FragmentWords& out) {
  for (int r = 0; r < 8; ++r) {
    const std::uint16_t* top = rows + static_cast<std::size_t>(r) * stride + 16 * fragment;
    const std::uint16_t* bottom = top + 8 * stride;
    std::memcpy(out.a + words_per_row * r, top, 16);
    std::memcpy(out.b + words_per_row * r, bottom, 16);
    std::memcpy(out.c + words_per_row * r, top + 8, 16);
    std::memcpy(out.d + words_per_row * r, bottom + 8, 16);
  }
}

inline void store_fragment(const FragmentWords& in, int fragment, std::uint16_t* rows,
                           std::size_t stride) {
  for (int r = 0; r < 8; ++r) {
    std::uint16_t* top = rows + static_cast<std::size_t>(r) * stride + 16 * fragment;
    std::uint16_t* bottom = top + 8 * stride;
    std::memcpy(top, in.a + words_per_row * r, 16);
    std::memcpy(bottom, in.b + words_per_row * r, 16);
    std::memcpy(top + 8, in.c + words_per_row * r, 16);
    std::memcpy(bottom + 8, in.d + words_per_row * r, 16);
  }
}

// Bytes 0 and 2 of `first`, then those of `second`.
inline std::uint32_t even_bytes(std::uint32_t first, std::uint32_t second) {
  first &= 0x00FF00FF;
  second &= 0x00FF00FF;
  return ((first | first >> 8) & 0xFFFF) | (second << 16 | (second << 8 & 0xFF000000));
}

// Byte 0 to byte 0 and byte 1 to byte 2.
inline std::uint32_t spread_bytes(std::uint32_t pair) { return (pair | pair << 8) & 0x00FF00FF; }

// 0xFF for every byte that is not zero.
inline std::uint32_t nonzero_bytes(std::uint32_t bytes) {
  const std::uint32_t top = (((bytes & 0x7F7F7F7F) + 0x7F7F7F7F) | bytes) & 0x80808080;
  return top | (top - (top >> 7));
}

// A window base as the loops use it.
struct WindowBytes {
  explicit WindowBytes(int base)
      : half_base(static_cast<std::uint32_t>(base / 2) * 0x01010101),
        zero_exponent(base == 0 ? 0x80808080 : 0) {}
  std::uint32_t half_base;      // base / 2 in every byte
  std::uint32_t zero_exponent;  // base 0 would take exponent 0 in: mask that keeps it out
};

struct EncodedBytes {
  std::uint32_t low;      // low bytes, 0 for exceptions
  std::uint32_t high;     // s0000ccc, 0 for exceptions
  std::uint32_t outside;  // 0xFF for exceptions
};

// Four weights, given as their low and their high bytes.
inline EncodedBytes encode_bytes(std::uint32_t low, std::uint32_t high, WindowBytes window) {
  const std::uint32_t exponent = high & 0x7F7F7F7F;
  // Byte by byte 0x80 + exponent - half_base, which never borrows: in the window it is 0x80..0x87.
  const std::uint32_t code = (exponent | 0x80808080) - window.half_base;
  const std::uint32_t zero = ~((exponent + 0x7F7F7F7F) | low) & window.zero_exponent;
  const std::uint32_t outside = nonzero_bytes(((code ^ 0x80808080) & 0xF8F8F8F8) | zero);
  return {low & ~outside, ((high & 0x80808080) | (code & 0x07070707)) & ~outside, outside};
}

/// Writes a split12 tile. True if a weight of the 16 x 64 is outside the window: it is left as the
/// stand-in.
inline bool encode_split12(const std::uint16_t* rows, std::size_t stride, WindowBytes window,
                           std::byte* tile) {
  std::uint32_t any_outside = 0;
  for (int f = 0; f < format::fragments_per_tile; ++f) {
    FragmentWords w;
    load_fragment(rows, stride, f, w);
    alignas(64) std::uint32_t low0[format::lanes];
    alignas(64) std::uint32_t low1[format::lanes];
    alignas(64) std::uint32_t nibbles[format::lanes];
    for (int lane = 0; lane < format::lanes; ++lane) {
      const auto first = encode_bytes(even_bytes(w.a[lane], w.b[lane]),
                                      even_bytes(w.a[lane] >> 8, w.b[lane] >> 8), window);
      const auto second = encode_bytes(even_bytes(w.c[lane], w.d[lane]),
                                       even_bytes(w.c[lane] >> 8, w.d[lane] >> 8), window);
      low0[lane] = first.low;
      low1[lane] = second.low;
      nibbles[lane] = first.high | second.high >> 4 | second.high << 28;
      any_outside |= first.outside | second.outside;
    }
    std::byte* low_out = tile + (f / 2) * format::plane_bytes + (f % 2) * 8;
    std::byte* nibble_out = tile + 2 * format::plane_bytes + f * 4;
    for (int lane = 0; lane < format::lanes; ++lane) {
      std::memcpy(low_out + lane * format::lane_plane_bytes, low0 + lane, 4);
      std::memcpy(low_out + lane * format::lane_plane_bytes + 4, low1 + lane, 4);
      std::memcpy(nibble_out + lane * format::lane_plane_bytes, nibbles + lane, 4);
    }
  }
  return any_outside != 0;
}

/// Writes the 16 x 64 weights of a split12 tile; exceptions come out as the stand-in's bits.
inline void decode_split12(const std::byte* tile, WindowBytes window, std::uint16_t* rows,
                           std::size_t stride) {
  for (int f = 0; f < format::fragments_per_tile; ++f) {
    alignas(64) std::uint32_t low0[format::lanes];
    alignas(64) std::uint32_t low1[format::lanes];
    alignas(64) std::uint32_t nibbles[format::lanes];
    const std::byte* low_in = tile + (f / 2) * format::plane_bytes + (f % 2) * 8;
    const std::byte* nibble_in = tile + 2 * format::plane_bytes + f * 4;
    for (int lane = 0; lane < format::lanes; ++lane) {
      std::memcpy(low0 + lane, low_in + lane * format::lane_plane_bytes, 4);
      std::memcpy(low1 + lane, low_in + lane * format::lane_plane_bytes + 4, 4);
      std::memcpy(nibbles + lane, nibble_in + lane * format::lane_plane_bytes, 4);
    }
    FragmentWords w;
    for (int lane = 0; lane < format::lanes; ++lane) {
      const std::uint32_t word = nibbles[lane];
      const std::uint32_t first = (word & 0x87878787) + window.half_base;
      const std::uint32_t second = ((word << 4 | word >> 28) & 0x87878787) + window.half_base;
      w.a[lane] = spread_bytes(low0[lane] & 0xFFFF) | spread_bytes(first & 0xFFFF) << 8;
      w.b[lane] = spread_bytes(low0[lane] >> 16) | spread_bytes(first >> 16) << 8;
      w.c[lane] = spread_bytes(low1[lane] & 0xFFFF) | spread_bytes(second & 0xFFFF) << 8;
      w.d[lane] = spread_bytes(low1[lane] >> 16) | spread_bytes(second >> 16) << 8;
    }
    store_fragment(w, f, rows, stride);
  }
}

inline void encode_raw16(const std::uint16_t* rows, std::size_t stride, std::byte* tile) {
  for (int f = 0; f < format::fragments_per_tile; ++f) {
    FragmentWords w;
    load_fragment(rows, stride, f, w);
    std::byte* plane = tile + f * format::plane_bytes;
    for (int lane = 0; lane < format::lanes; ++lane) {
      const std::uint32_t words[4] = {w.a[lane], w.b[lane], w.c[lane], w.d[lane]};
      std::memcpy(plane + lane * format::lane_plane_bytes, words, sizeof(words));
    }
  }
}

inline void decode_raw16(const std::byte* tile, std::uint16_t* rows, std::size_t stride) {
  for (int f = 0; f < format::fragments_per_tile; ++f) {
    FragmentWords w;
    const std::byte* plane = tile + f * format::plane_bytes;
    for (int lane = 0; lane < format::lanes; ++lane) {
      std::uint32_t words[4];
      std::memcpy(words, plane + lane * format::lane_plane_bytes, sizeof(words));
      w.a[lane] = words[0];
      w.b[lane] = words[1];
      w.c[lane] = words[2];
      w.d[lane] = words[3];
    }
    store_fragment(w, f, rows, stride);
  }
}

// FP32: a lane's 16 bytes are the pairs at (row, k) and (row + 8, k); k is the fragment's first
// half in plane 2f and its second in plane 2f + 1.
inline void encode_raw32(const float* rows, std::size_t stride, std::byte* tile) {
  for (int plane = 0; plane < format::raw32_planes; ++plane) {
    for (int lane = 0; lane < format::lanes; ++lane) {
      const float* top =
          rows + static_cast<std::size_t>(lane / 4) * stride + 8 * plane + 2 * (lane % 4);
      std::byte* out = tile + plane * format::plane_bytes + lane * format::lane_plane_bytes;
      std::memcpy(out, top, 8);
      std::memcpy(out + 8, top + 8 * stride, 8);
    }
  }
}

inline void decode_raw32(const std::byte* tile, float* rows, std::size_t stride) {
  for (int plane = 0; plane < format::raw32_planes; ++plane) {
    for (int lane = 0; lane < format::lanes; ++lane) {
      float* top = rows + static_cast<std::size_t>(lane / 4) * stride + 8 * plane + 2 * (lane % 4);
      const std::byte* in = tile + plane * format::plane_bytes + lane * format::lane_plane_bytes;
      std::memcpy(top, in, 8);
      std::memcpy(top + 8 * stride, in + 8, 8);
    }
  }
}

}  // namespace slimgemm::codec
