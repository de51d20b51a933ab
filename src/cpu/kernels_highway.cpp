// SPDX-License-Identifier: Apache-2.0
// Kernels for AVX2 and AVX-512 with FP32 multiply-add, by Highway: this file is compiled once for
// each of the two.
#include "cpu/gemm_includes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels_highway.cpp"
#define HWY_COMPILE_ALL_ATTAINABLE
// Neither what is newer than AVX-512 nor what is older than AVX2.
#define HWY_DISABLED_TARGETS ((HWY_AVX3 - 1LL) | HWY_SSE4 | HWY_SSSE3)
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace slimgemm::cpu::HWY_NAMESPACE {

#include "cpu/gemm-inl.hpp"

namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_AVX3
constexpr int registers = 32;
#else
constexpr int registers = 16;
#endif

struct Ops {
  using F32 = hn::ScalableTag<float>;
  using U32 = hn::RebindToUnsigned<F32>;
  using U16 = hn::Repartition<std::uint16_t, F32>;
  using U8 = hn::Repartition<std::uint8_t, F32>;
  using Vector = hn::Vec<F32>;
  using Sum = hn::Vec<F32>;
  using Words = hn::Vec<U32>;
  static constexpr int vector_bytes = hn::MaxLanes(U8());
  static constexpr int lanes = vector_bytes / 4;
  static constexpr int k16_steps = 2;
  static constexpr int max_sums = registers * 3 / 4;
  static constexpr int max_tokens = max_sums / 2;
  static constexpr int direct_tokens = registers == 32 ? 2 : 1;
  static constexpr bool drops_subnormal_weights = false;

  static HWY_INLINE Sum zero() { return hn::Zero(F32()); }
  static HWY_INLINE Sum load_sum(const float* from) { return hn::Load(F32(), from); }
  static HWY_INLINE void store_sum(Sum sum, float* to) { hn::Store(sum, F32(), to); }
  static HWY_INLINE Vector load(const std::uint8_t* from) {
    return hn::BitCast(F32(), hn::Load(U8(), from));
  }
  static HWY_INLINE void store(Vector vector, std::uint8_t* to) {
    hn::Store(hn::BitCast(U8(), vector), U8(), to);
  }
  static HWY_INLINE Vector load_register(const std::uint8_t* from) {
    Vector vector = load(from);
    asm("" : "+v"(vector.raw));  // otherwise GCC makes the load part of every multiplication
    return vector;
  }
  static HWY_INLINE Sum multiply_add(Vector weights, Vector x, Sum sum) {
    return hn::MulAdd(weights, x, sum);
  }

  // The low and the high BF16 of every lane.
  static HWY_INLINE Vector even(Words pairs) {
    return hn::BitCast(F32(), hn::ShiftLeft<16>(pairs));
  }
  static HWY_INLINE Vector odd(Words pairs) {
    return hn::BitCast(F32(), hn::And(pairs, hn::Set(U32(), 0xFFFF0000U)));
  }

  // The two low-byte planes and the nibble plane lie alike: lane q of a row pair has the bytes of
  // fragments 0, 1 (plane 0) and 2, 3 (plane 1) and a nibble word a fragment.
  static HWY_INLINE void decode_split12(const std::uint8_t* at, int window_base, Vector (&to)[8]) {
    const auto mask = hn::Set(U32(), 0x87878787U);
    const auto base = hn::Set(U8(), static_cast<std::uint8_t>(window_base / 2));
    const auto nibbles = hn::BitCast(U32(), hn::Load(U8(), at + 2 * format::plane_bytes));
    const auto first = hn::And(nibbles, mask);                        // high bytes of index 0..3
    const auto second = hn::And(hn::RotateRight<28>(nibbles), mask);  // and of index 4..7
    for (int plane = 0; plane < 2; ++plane) {
      const auto codes = plane == 0 ? hn::InterleaveLower(U32(), first, second)
                                    : hn::InterleaveUpper(U32(), first, second);
      const auto high = hn::Add(hn::BitCast(U8(), codes), base);
      const auto low = hn::Load(U8(), at + plane * format::plane_bytes);
      const auto pairs0 = hn::BitCast(U32(), hn::InterleaveLower(U8(), low, high));
      const auto pairs1 = hn::BitCast(U32(), hn::InterleaveUpper(U8(), low, high));
      to[4 * plane + 0] = even(pairs0);
      to[4 * plane + 1] = odd(pairs0);
      to[4 * plane + 2] = even(pairs1);
      to[4 * plane + 3] = odd(pairs1);
    }
  }

  template <Encoding E>
  static HWY_INLINE void decode(const std::uint8_t* tile, int r, int part, int window_base,
                                Vector (&to)[8]) {
    const std::uint8_t* const at = tile + r * chunk_bytes + part * vector_bytes;
    if constexpr (E == Encoding::split12) {
      decode_split12(at, window_base, to);
    } else if constexpr (E == Encoding::raw16) {
      for (int f = 0; f < format::fragments_per_tile; ++f) {
        const auto pairs = hn::BitCast(U32(), hn::Load(U8(), at + f * format::plane_bytes));
        to[2 * f] = even(pairs);
        to[2 * f + 1] = odd(pairs);
      }
    } else {
      for (int s = 0; s < 8; ++s) to[s] = load(at + s * format::plane_bytes);
    }
  }

  // x as eight pairs, k16 = 2 * pair + k0: lane 4 * q + i of a chunk takes pair 4 * kh + q.
  template <Encoding E>
  static HWY_INLINE void arrange(const std::uint16_t* x, std::uint8_t* to, std::size_t step_bytes) {
    const hn::CappedTag<std::uint16_t, 16> sixteen;
    const auto pairs = widened(
        hn::BitCast(hn::Repartition<std::uint32_t, decltype(sixteen)>(), hn::LoadU(sixteen, x)));
    for (int part = 0; part < chunk_bytes / vector_bytes; ++part) {
      std::uint8_t* const at = to + part * vector_bytes;
      if constexpr (E == Encoding::raw32) {
        const auto chunk0 = look_up(pairs, raw32_pairs[0] + part * lanes);
        const auto chunk1 = look_up(pairs, raw32_pairs[1] + part * lanes);
        store(hn::OddEven(odd(chunk0), even(chunk0)), at);
        store(hn::OddEven(odd(chunk1), even(chunk1)), at + step_bytes);
      } else {
        const auto chunk = look_up(pairs, bf16_pairs + part * lanes);
        store(even(chunk), at);
        store(odd(chunk), at + step_bytes);
      }
    }
  }

  template <Encoding E>
  static HWY_INLINE void reduce(Sum sum, float& row, float& row_plus_8) {
    const hn::Half<F32> half;
    const auto folded = hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum));
    alignas(32) float lane[4];
    fold(half, folded, lane);
    constexpr bool adjacent = E == Encoding::raw32;
    row = lane[0] + lane[adjacent ? 1 : 2];
    row_plus_8 = lane[adjacent ? 2 : 1] + lane[3];
  }

 private:
  static constexpr std::int32_t bf16_pairs[16] = {0, 0, 4, 4, 1, 1, 5, 5, 2, 2, 6, 6, 3, 3, 7, 7};
  static constexpr std::int32_t raw32_pairs[2][16] = {
      {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3},
      {4, 4, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7}};

  template <class V>
  static HWY_INLINE Words widened(V eight_words) {
    if constexpr (lanes == 8) {
      return eight_words;
    } else {
      return hn::ZeroExtendVector(U32(), eight_words);
    }
  }
  static HWY_INLINE Words look_up(Words pairs, const std::int32_t* indices) {
    return hn::TableLookupLanes(pairs, hn::SetTableIndices(U32(), indices));
  }
  template <class D, class V>
  static HWY_INLINE void fold(D d, V sum, float* to) {
    if constexpr (hn::MaxLanes(D()) == 4) {
      hn::StoreU(sum, d, to);
    } else {
      const hn::Half<D> half;
      fold(half, hn::Add(hn::LowerHalf(half, sum), hn::UpperHalf(half, sum)), to);
    }
  }
};

#if HWY_TARGET == HWY_AVX3
constexpr const char* target_name = "avx512";
#else
constexpr const char* target_name = "avx2";
#endif
constexpr KernelTables tables = {{Gemm<Ops, Encoding::split12>::table(target_name),
                                  Gemm<Ops, Encoding::raw16>::table(target_name),
                                  Gemm<Ops, Encoding::raw32>::table(target_name)}};

}  // namespace slimgemm::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
namespace slimgemm::cpu {

const KernelTables* avx2_kernels() {
#if HWY_TARGETS & HWY_AVX2
  if ((hwy::SupportedTargets() & HWY_AVX2) != 0) return &N_AVX2::tables;
#endif
  return nullptr;
}

const KernelTables* avx512_kernels() {
#if HWY_TARGETS & HWY_AVX3
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) return &N_AVX3::tables;
#endif
  return nullptr;
}

}  // namespace slimgemm::cpu
#endif
