// SPDX-License-Identifier: Apache-2.0
// Warp-level tensor core instructions and what feeds them.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace slimgemm::cuda::ptx {

/// c += a * b, m16n8k16, BF16 operands, FP32 accumulators. With g = lane / 4, t = lane % 4:
/// a: rows g, g + 8 and columns 2t, 2t + 1, 2t + 8, 2t + 9 (docs/format.md section 2);
/// b: k as a's columns, n = g; c: rows g (c[0], c[1]) and g + 8, columns 2t, 2t + 1.
__device__ __forceinline__ void mma_m16n8k16(float (&c)[4], const std::uint32_t (&a)[4],
                                             std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
      " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// A pair of BF16 times another, element by element; subnormals count.
__device__ __forceinline__ std::uint32_t multiply_bf16x2(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

/// Stores two 8x8 matrices of 16-bit elements transposed: lane l < 16 gives the address of row l %
/// 8 of stored matrix l / 8.
__device__ __forceinline__ void stmatrix_x2_trans(std::uint32_t address, std::uint32_t r0,
                                                  std::uint32_t r1) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(address),
               "r"(r0), "r"(r1)
               : "memory");
}
/// The same with four, addresses from all lanes.
__device__ __forceinline__ void stmatrix_x4_trans(std::uint32_t address, std::uint32_t r0,
                                                  std::uint32_t r1, std::uint32_t r2,
                                                  std::uint32_t r3) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(r0), "r"(r1), "r"(r2), "r"(r3)
      : "memory");
}

/// Two values rounded to BF16, a in the low half.
__device__ __forceinline__ std::uint32_t bf16_pair(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  return reinterpret_cast<const std::uint32_t&>(pair);
}

}  // namespace slimgemm::cuda::ptx
