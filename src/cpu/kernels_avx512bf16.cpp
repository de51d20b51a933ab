// SPDX-License-Identifier: Apache-2.0
// The split12 kernel on AVX-512's BF16 dot product (vdpbf16ps): a chunk holds pairs of BF16, the
// products are exact, sums are FP32. The instruction takes subnormal operands for zero and makes
// subnormal results zero; dot_is_exact() says when it may be used.
#include "cpu/gemm_includes.hpp"

#include <hwy/detect_compiler_arch.h>

#if HWY_ARCH_X86_64
#include <hwy/base.h>
#include <immintrin.h>

// GCC 12's own header fills the operand that an unmasked instruction ignores from itself.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

HWY_PUSH_ATTRIBUTES("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")
namespace slimgemm::cpu::avx512bf16 {

#include "cpu/gemm-inl.hpp"

struct Ops {
  using Vector = __m512i;
  using Sum = __m512;
  static constexpr int vector_bytes = 64;
  static constexpr int k16_steps = 1;
  static constexpr int max_sums = 24;
  static constexpr int max_tokens = 12;
  static constexpr int direct_tokens = 3;
  static constexpr bool drops_subnormal_weights = true;

  static HWY_INLINE Sum zero() { return _mm512_setzero_ps(); }
  static HWY_INLINE Sum load_sum(const float* from) { return _mm512_load_ps(from); }
  static HWY_INLINE void store_sum(Sum sum, float* to) { _mm512_store_ps(to, sum); }
  static HWY_INLINE Vector load(const std::uint8_t* from) { return _mm512_load_si512(from); }
  static HWY_INLINE void store(Vector vector, std::uint8_t* to) { _mm512_store_si512(to, vector); }
  static HWY_INLINE Vector load_register(const std::uint8_t* from) {
    Vector vector = load(from);
    asm("" : "+v"(vector));  // otherwise GCC makes the load part of every multiplication
    return vector;
  }
  static HWY_INLINE Sum multiply_add(Vector weights, Vector x, Sum sum) {
    return _mm512_dpbf16_ps(sum, (__m512bh)weights, (__m512bh)x);
  }

  template <Encoding E>
  static HWY_INLINE void decode(const std::uint8_t* tile, int r, int, int window_base,
                                Vector (&to)[4]) {
    static_assert(E == Encoding::split12);
    const std::uint8_t* const at = tile + r * chunk_bytes;
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(0x87878787U));
    const __m512i base = _mm512_set1_epi8(static_cast<char>(window_base / 2));
    const __m512i nibbles = load(at + 2 * format::plane_bytes);
    const __m512i first = _mm512_and_si512(nibbles, mask);
    const __m512i second = _mm512_and_si512(_mm512_rol_epi32(nibbles, 4), mask);
    const __m512i high0 = add_bytes(_mm512_unpacklo_epi32(first, second), base);
    const __m512i high1 = add_bytes(_mm512_unpackhi_epi32(first, second), base);
    const __m512i low0 = load(at);
    const __m512i low1 = load(at + format::plane_bytes);
    to[0] = _mm512_unpacklo_epi8(low0, high0);
    to[1] = _mm512_unpackhi_epi8(low0, high0);
    to[2] = _mm512_unpacklo_epi8(low1, high1);
    to[3] = _mm512_unpackhi_epi8(low1, high1);
  }

  template <Encoding E>
  static HWY_INLINE void arrange(const std::uint16_t* x, std::uint8_t* to, std::size_t) {
    const __m512i lanes = _mm512_setr_epi32(0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7);
    const __m256i pairs = _mm256_loadu_si256(reinterpret_cast<const __m256i_u*>(x));
    store(_mm512_permutexvar_epi32(lanes, _mm512_castsi256_si512(pairs)), to);
  }

  template <Encoding E>
  static HWY_INLINE void reduce(Sum sum, float& row, float& row_plus_8) {
    const __m256 half = _mm512_castps512_ps256(sum) + _mm512_extractf32x8_ps(sum, 1);
    const __m128 lane = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
    const __m128 pair = lane + _mm_movehl_ps(lane, lane);
    row = _mm_cvtss_f32(pair);
    row_plus_8 = _mm_cvtss_f32(_mm_movehdup_ps(pair));
  }

 private:
  static HWY_INLINE __m512i add_bytes(__m512i a, __m512i b) {
    using Bytes = std::uint8_t __attribute__((vector_size(64)));
    return (__m512i)((Bytes)a + (Bytes)b);
  }
};

constexpr KernelTable table = Gemm<Ops, Encoding::split12>::table("avx512bf16");

}  // namespace slimgemm::cpu::avx512bf16
HWY_POP_ATTRIBUTES

#endif

namespace slimgemm::cpu {

const KernelTable* avx512bf16_kernels() {
#if HWY_ARCH_X86_64
  if (avx512_kernels() != nullptr && __builtin_cpu_supports("avx512bf16") != 0) {
    return &avx512bf16::table;
  }
#endif
  return nullptr;
}

}  // namespace slimgemm::cpu
