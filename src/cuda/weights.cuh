// SPDX-License-Identifier: Apache-2.0
// From the packed planes of a tile to BF16 A fragments in registers.
#pragma once

#include <slimgemm/types.hpp>

#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/mma.cuh"
#include "format/device_image.hpp"
#include "format/layout.hpp"

#include <cstdint>

namespace slimgemm::cuda {

/// Eight split12 weights of a lane to an A fragment, bit by bit what was packed.
///
///   word of nibbles   | 0x87878787 keeps sign and code of weights 0..3, adding `window` (half the
///                     |   window's base in each byte) gives four high bytes: no byte carries
///   rotated by 4 bits | the same for weights 4..7
///   byte permutes     | join low and high bytes: (low0 high0 low1 high1), ...
///
/// 2 LOP3 + 2 IADD + 1 SHF + 4 PRMT for eight weights.
__device__ __forceinline__ void decode_split12(std::uint32_t (&a)[4], std::uint32_t low_0_3,
                                               std::uint32_t low_4_7, std::uint32_t nibbles,
                                               std::uint32_t window) {
  const std::uint32_t high_0_3 = (nibbles & 0x87878787u) + window;
  const std::uint32_t rotated = __funnelshift_l(nibbles, nibbles, 4);
  const std::uint32_t high_4_7 = (rotated & 0x87878787u) + window;
  a[0] = __byte_perm(low_0_3, high_0_3, 0x5140);
  a[1] = __byte_perm(low_0_3, high_0_3, 0x7362);
  a[2] = __byte_perm(low_4_7, high_4_7, 0x5140);
  a[3] = __byte_perm(low_4_7, high_4_7, 0x7362);
}

/// What the slot of an exception decodes to, as BF16 bits.
__device__ __forceinline__ std::uint32_t stand_in_bits(std::uint32_t window) {
  return (window & 0xFF) << 8;
}

/// Two FP32 weights as three pairs of BF16 that add up to them: `a[0]` are the upper halves, with
/// sign, exponent e and the first 8 bits of the mantissa; a byte b of the lower halves stands for
/// b * 2^(e - 15) or b * 2^(e - 23). As the bits of a BF16, subnormal or not, b is b * 2^-133:
/// products with two powers of two, both exact, give the term. (Terms under BF16's smallest
/// subnormal, 2^-133, are rounded: those of weights below 2^-110.)
__device__ __forceinline__ void split_pair(std::uint32_t (&a)[3], format::HalvesOfPair pair) {
  constexpr std::uint32_t two_118 = 0x7A807A80;
  constexpr std::uint32_t two_110 = 0x76807680;
  const std::uint32_t power = pair.upper & 0xFF80FF80u;  // and sign
  const std::uint32_t middle = __byte_perm(pair.lower, 0, 0x4341);
  const std::uint32_t last = pair.lower & 0x00FF00FFu;
  a[0] = pair.upper;
  a[1] = ptx::multiply_bf16x2(ptx::multiply_bf16x2(middle, two_118), power);
  a[2] = ptx::multiply_bf16x2(ptx::multiply_bf16x2(last, two_110), power);
}

/// The same where a weight may be Inf or NaN: nothing remains of it, and a NaN stays one.
__device__ __forceinline__ void split_nonfinite_pair(std::uint32_t (&a)[3],
                                                     format::HalvesOfPair pair) {
  float v[2] = {__uint_as_float(format::first_of_pair(pair)),
                __uint_as_float(format::second_of_pair(pair))};
#pragma unroll
  for (std::uint32_t& term : a) {
    std::uint32_t bits[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bits[i] = __float_as_uint(v[i]);
      if (isfinite(v[i])) {
        v[i] -= __uint_as_float(bits[i] & 0xFFFF0000u);
      } else {
        if (isnan(v[i])) bits[i] |= 0x00400000u;
        v[i] = 0.0f;
      }
    }
    term = __byte_perm(bits[0], bits[1], 0x7632);
  }
}

/// A lane's 16 bytes of every plane of a tile, in registers.
template <int Planes>
struct LanePlanes {
  static constexpr int planes = Planes;
  uint4 plane[planes];

  __device__ __forceinline__ void load(std::uint32_t address) {
#pragma unroll
    for (int p = 0; p < planes; ++p) {
      plane[p] = ptx::load_shared_16(address + p * format::plane_bytes);
    }
  }
};

/// A lane's part of one tile. BF16 encodings: load() fetches it from `address` (its 16 bytes of
/// plane 0), fragment() gives the A fragment of k16 block f. FP32: terms_of() gives the three A
/// fragments whose sum is the weight (three BF16 terms hold the 24 bits of its mantissa).
template <Encoding E>
struct LaneTile;

template <>
struct LaneTile<Encoding::split12> : LanePlanes<format::split12_planes> {
  static constexpr int terms = 1;

  __device__ __forceinline__ void fragment(int f, std::uint32_t window,
                                           std::uint32_t (&a)[4]) const {
    const uint4& low = plane[f / 2];
    const uint4& high = plane[2];
    const std::uint32_t nibbles = f == 0 ? high.x : f == 1 ? high.y : f == 2 ? high.z : high.w;
    decode_split12(a, f % 2 ? low.z : low.x, f % 2 ? low.w : low.y, nibbles, window);
  }
};

template <>
struct LaneTile<Encoding::raw16> : LanePlanes<format::raw16_planes> {
  static constexpr int terms = 1;

  __device__ __forceinline__ void fragment(int f, std::uint32_t, std::uint32_t (&a)[4]) const {
    a[0] = plane[f].x;
    a[1] = plane[f].y;
    a[2] = plane[f].z;
    a[3] = plane[f].w;
  }
};

template <>
struct LaneTile<Encoding::raw32> {
  static constexpr int planes = format::raw32_planes;
  static constexpr int terms = 3;

  __device__ __forceinline__ void load(std::uint32_t) {}
  /// Nonfinite: some weight of the matrix is Inf or NaN.
  template <bool Nonfinite>
  __device__ __forceinline__ void terms_of(std::uint32_t address, int f,
                                           std::uint32_t (&a)[terms][4]) const {
    const uint4 p = ptx::load_shared_16(address + 2 * f * format::plane_bytes);
    const uint4 q = ptx::load_shared_16(address + (2 * f + 1) * format::plane_bytes);
    const format::HalvesOfPair pairs[4] = {{p.x, p.y}, {p.z, p.w}, {q.x, q.y}, {q.z, q.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t pair[terms];
      if constexpr (Nonfinite) {
        split_nonfinite_pair(pair, pairs[i]);
      } else {
        split_pair(pair, pairs[i]);
      }
#pragma unroll
      for (int term = 0; term < terms; ++term) a[term][i] = pair[term];
    }
  }
};

}  // namespace slimgemm::cuda
