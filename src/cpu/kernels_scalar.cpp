// SPDX-License-Identifier: Apache-2.0
// Kernels in plain C++, for any machine. A vector is one q of a chunk: four lanes.
#include "cpu/gemm_includes.hpp"

namespace slimgemm::cpu {
namespace scalar {

#include "cpu/gemm-inl.hpp"

struct Four {
  float v[4];
};

struct Ops {
  using Vector = Four;
  using Sum = Four;
  static constexpr int vector_bytes = sizeof(Four);
  static constexpr int k16_steps = 2;
  static constexpr int max_sums = 8;
  static constexpr int max_tokens = 4;
  static constexpr int direct_tokens = 1;
  static constexpr bool drops_subnormal_weights = false;

  static Sum zero() { return {}; }
  static Sum load_sum(const float* from) {
    Sum sum;
    std::memcpy(sum.v, from, sizeof(sum.v));
    return sum;
  }
  static void store_sum(Sum sum, float* to) { std::memcpy(to, sum.v, sizeof(sum.v)); }
  static Vector load(const std::uint8_t* from) {
    Vector vector;
    std::memcpy(vector.v, from, sizeof(vector.v));
    return vector;
  }
  static void store(Vector vector, std::uint8_t* to) {
    std::memcpy(to, vector.v, sizeof(vector.v));
  }
  static Vector load_register(const std::uint8_t* from) { return load(from); }
  static Sum multiply_add(Vector weights, Vector x, Sum sum) {
    for (int i = 0; i < 4; ++i) sum.v[i] += weights.v[i] * x.v[i];
    return sum;
  }

  // Eight BF16 of a lane's fragment, by index 4 * kh + 2 * rh + k0, to the two chunks' lanes.
  static void widen(const std::uint16_t (&bits)[8], Vector& even, Vector& odd) {
    for (int i = 0; i < 4; ++i) {
      even.v[i] = bf16_to_float(bits[2 * i]);
      odd.v[i] = bf16_to_float(bits[2 * i + 1]);
    }
  }

  template <Encoding E>
  static void decode(const std::uint8_t* tile, int r, int part, int window_base, Vector (&to)[8]) {
    const int lane = (4 * r + part) * format::lane_plane_bytes;
    for (int f = 0; f < format::fragments_per_tile; ++f) {
      if constexpr (E == Encoding::split12) {
        const std::uint8_t* const low = tile + f / 2 * format::plane_bytes + lane + f % 2 * 8;
        std::uint32_t nibbles;
        std::memcpy(&nibbles, tile + 2 * format::plane_bytes + lane + 4 * f, sizeof(nibbles));
        const std::uint32_t base = 0x01010101U * static_cast<std::uint32_t>(window_base / 2);
        const std::uint32_t high[2] = {(nibbles & 0x87878787U) + base,
                                       ((nibbles << 4 | nibbles >> 28) & 0x87878787U) + base};
        std::uint16_t bits[8];
        for (int i = 0; i < 8; ++i) {
          bits[i] =
              static_cast<std::uint16_t>((high[i / 4] >> (8 * (i % 4)) & 0xFFU) << 8 | low[i]);
        }
        widen(bits, to[2 * f], to[2 * f + 1]);
      } else if constexpr (E == Encoding::raw16) {
        std::uint16_t bits[8];
        std::memcpy(bits, tile + f * format::plane_bytes + lane, sizeof(bits));
        widen(bits, to[2 * f], to[2 * f + 1]);
      } else {
        to[2 * f] = load(tile + 2 * f * format::plane_bytes + lane);
        to[2 * f + 1] = load(tile + (2 * f + 1) * format::plane_bytes + lane);
      }
    }
  }

  template <Encoding E>
  static void arrange(const std::uint16_t* x, std::uint8_t* to, std::size_t step_bytes) {
    for (int k = 0; k < 16; ++k) {
      const int kh = k / 8;
      const int q = k % 8 / 2;
      const int k0 = k % 2;
      const float value = bf16_to_float(x[k]);
      for (int rh = 0; rh < 2; ++rh) {
        const int chunk = E == Encoding::raw32 ? kh : k0;
        const int lane = 4 * q + (E == Encoding::raw32 ? 2 * rh + k0 : 2 * kh + rh);
        std::memcpy(to + static_cast<std::size_t>(chunk) * step_bytes + 4 * lane, &value,
                    sizeof(value));
      }
    }
  }

  template <Encoding E>
  static void reduce(Sum sum, float& row, float& row_plus_8) {
    constexpr bool adjacent = E == Encoding::raw32;
    row = sum.v[0] + sum.v[adjacent ? 1 : 2];
    row_plus_8 = sum.v[adjacent ? 2 : 1] + sum.v[3];
  }
};

}  // namespace scalar

const KernelTables& scalar_kernels() {
  static constexpr KernelTables tables = {
      {scalar::Gemm<scalar::Ops, Encoding::split12>::table("scalar"),
       scalar::Gemm<scalar::Ops, Encoding::raw16>::table("scalar"),
       scalar::Gemm<scalar::Ops, Encoding::raw32>::table("scalar")}};
  return tables;
}

}  // namespace slimgemm::cpu
