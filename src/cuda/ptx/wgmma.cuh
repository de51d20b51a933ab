// SPDX-License-Identifier: Apache-2.0
// Warpgroup matrix multiply with A from registers and B from shared memory.
#pragma once

#include <cstdint>

namespace slimgemm::cuda::ptx {

/// Orders register accesses before the next wgmma of the warpgroup.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most `Pending` groups are in flight.
template <int Pending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

/// Descriptor of a K-major BF16 B tile whose rows are 128 bytes, 128-byte swizzle, aligned to 1024
/// bytes: 8-row groups are 1024 bytes apart. Add 2 to step 16 k (32 bytes) on.
__device__ __forceinline__ std::uint64_t wgmma_descriptor(std::uint32_t shared) {
  constexpr std::uint64_t swizzle_128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t stride_bytes = std::uint64_t{1024 >> 4} << 32;
  constexpr std::uint64_t leading_bytes = std::uint64_t{1} << 16;  // not used in this layout
  return swizzle_128 | stride_bytes | leading_bytes | (shared >> 4);
}

/// mma<true>: d += a * b, mma<false>: d = a * b; m64nNk16, BF16 operands, FP32 accumulators. Warp w
/// of the warpgroup owns rows 16w .. 16w + 15: its a and its d have the layout of mma_m16n8k16,
/// d[4 * j ..] being columns 8j .. 8j + 7.
template <int N>
struct Wgmma;

// One operand of the lists below stands for eight accumulators.
#define SLIMGEMM_ACCUMULATORS_8(d, i)                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define SLIMGEMM_ACCUMULATORS_32(d, i)                              \
  SLIMGEMM_ACCUMULATORS_8(d, i), SLIMGEMM_ACCUMULATORS_8(d, i + 8), \
      SLIMGEMM_ACCUMULATORS_8(d, i + 16), SLIMGEMM_ACCUMULATORS_8(d, i + 24)

template <>
struct Wgmma<32> {
  template <bool Add>
  __device__ __forceinline__ static void mma(float (&d)[16], const std::uint32_t* a,
                                             std::uint64_t b) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %21, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
        "}, {%16, %17, %18, %19}, %20, add, 1, 1, 0; }"
        : SLIMGEMM_ACCUMULATORS_8(d, 0), SLIMGEMM_ACCUMULATORS_8(d, 8)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add));
  }
};

template <>
struct Wgmma<64> {
  template <bool Add>
  __device__ __forceinline__ static void mma(float (&d)[32], const std::uint32_t* a,
                                             std::uint64_t b) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %37, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
        "}, {%32, %33, %34, %35}, %36, add, 1, 1, 0; }"
        : SLIMGEMM_ACCUMULATORS_32(d, 0)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add));
  }
};

template <>
struct Wgmma<96> {
  template <bool Add>
  __device__ __forceinline__ static void mma(float (&d)[48], const std::uint32_t* a,
                                             std::uint64_t b) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %53, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
        "}, {%48, %49, %50, %51}, %52, add, 1, 1, 0; }"
        : SLIMGEMM_ACCUMULATORS_32(d, 0), SLIMGEMM_ACCUMULATORS_8(d, 32),
          SLIMGEMM_ACCUMULATORS_8(d, 40)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add));
  }
};

template <>
struct Wgmma<128> {
  template <bool Add>
  __device__ __forceinline__ static void mma(float (&d)[64], const std::uint32_t* a,
                                             std::uint64_t b) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
        "}, {%64, %65, %66, %67}, %68, add, 1, 1, 0; }"
        : SLIMGEMM_ACCUMULATORS_32(d, 0), SLIMGEMM_ACCUMULATORS_32(d, 32)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add));
  }
};

template <>
struct Wgmma<256> {
  template <bool Add>
  __device__ __forceinline__ static void mma(float (&d)[128], const std::uint32_t* a,
                                             std::uint64_t b) {
    asm volatile(
        "{ .reg .pred add; setp.ne.b32 add, %133, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "
        "%111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, "
        "%127"
        "}, {%128, %129, %130, %131}, %132, add, 1, 1, 0; }"
        : SLIMGEMM_ACCUMULATORS_32(d, 0), SLIMGEMM_ACCUMULATORS_32(d, 32),
          SLIMGEMM_ACCUMULATORS_32(d, 64), SLIMGEMM_ACCUMULATORS_32(d, 96)
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(Add));
  }
};

#undef SLIMGEMM_ACCUMULATORS_32
#undef SLIMGEMM_ACCUMULATORS_8

/// Keeps the compiler from moving reads or writes of registers that a wgmma in flight uses.
template <int Count>
__device__ __forceinline__ void pin_registers(std::uint32_t (&r)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+r"(r[i])::"memory");
}
template <int Count>
__device__ __forceinline__ void pin_registers(float (&r)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(r[i])::"memory");
}

}  // namespace slimgemm::cuda::ptx
