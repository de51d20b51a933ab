// SPDX-License-Identifier: Apache-2.0
// From the packed planes of a tile to BF16 A fragments in registers.
#pragma once

#include <slimgemm/types.hpp>

#include "cuda/ptx/memory.cuh"
#include "cuda/ptx/mma.cuh"
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

/// Takes the upper 16 bits of two floats as a BF16 pair and leaves the exact remainders.
__device__ __forceinline__ std::uint32_t split_bf16_pair(float& v0, float& v1) {
  const std::uint32_t bits0 = __float_as_uint(v0);
  const std::uint32_t bits1 = __float_as_uint(v1);
  v0 -= __uint_as_float(bits0 & 0xFFFF0000u);
  v1 -= __uint_as_float(bits1 & 0xFFFF0000u);
  return __byte_perm(bits0, bits1, 0x7632);
}

/// The same where a weight is Inf or NaN: nothing remains of it, and a NaN stays one.
__device__ __forceinline__ std::uint32_t split_bf16_pair_nonfinite(float& v0, float& v1) {
  const auto top = [](float& v) {
    std::uint32_t bits = __float_as_uint(v);
    if (isfinite(v)) {
      v -= __uint_as_float(bits & 0xFFFF0000u);
    } else {
      if (isnan(v)) bits |= 0x00400000u;
      v = 0.0f;
    }
    return bits;
  };
  const std::uint32_t bits0 = top(v0);
  const std::uint32_t bits1 = top(v1);
  return __byte_perm(bits0, bits1, 0x7632);
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
    float w[8] = {__uint_as_float(p.x), __uint_as_float(p.y), __uint_as_float(p.z),
                  __uint_as_float(p.w), __uint_as_float(q.x), __uint_as_float(q.y),
                  __uint_as_float(q.z), __uint_as_float(q.w)};
    if constexpr (Nonfinite) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int term = 0; term < terms; ++term) {
          a[term][i] = split_bf16_pair_nonfinite(w[2 * i], w[2 * i + 1]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int term = 0; term < terms; ++term) {
          a[term][i] = split_bf16_pair(w[2 * i], w[2 * i + 1]);
        }
      }
    }
  }
};

}  // namespace slimgemm::cuda
