// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_kernels.hpp"

#include "cuda/check.hpp"

#include <cuda_bf16.h>

#include <algorithm>

namespace slimgemm::judge {
namespace {

constexpr int flush_threads = 512;
constexpr int flush_ctas_per_sm = 4;
constexpr std::uint32_t unlikely = 0x9E3779B9u;  // what no sum of the data is expected to be

__global__ void empty_kernel() {}

__global__ void __launch_bounds__(flush_threads)
    flush_kernel(const uint4* data, std::size_t vectors, std::uint32_t* sink) {
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::uint32_t sum = 0;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors;
       i += step) {
    const uint4 value = data[i];
    sum += value.x + value.y + value.z + value.w;
  }
  if (sum == unlikely) *sink = sum;
}

__global__ void fill_bf16_kernel(__nv_bfloat16* data, std::int64_t count, std::uint32_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    std::uint32_t hash = (static_cast<std::uint32_t>(i) + seed) * 0x9E3779B1u;
    hash = (hash ^ (hash >> 16)) * 0x85EBCA77u;
    hash ^= hash >> 13;
    data[i] =
        __float2bfloat16(static_cast<float>(static_cast<int>(hash & 0xFFFF) - 0x8000) / 32768.0f);
  }
}

constexpr int cast_threads = 256;
constexpr int cast_values_per_thread = 4;

__global__ void __launch_bounds__(cast_threads)
    cast_to_f32_kernel(const __nv_bfloat16* from, float* to, std::int64_t count) {
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * cast_values_per_thread;
  if (first + cast_values_per_thread <= count) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from + first);
    const float4 values{__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u),
                        __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000u)};
    *reinterpret_cast<float4*>(to + first) = values;
    return;
  }
  for (std::int64_t i = first; i < count; ++i) to[i] = __bfloat162float(from[i]);
}

__device__ double as_double(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ double as_double(float value) { return value; }

// Reference tiles: a CTA of 16 x 16 threads makes 64 x 64 results, 4 x 4 a thread, from slices of
// x and w that lie in shared memory as doubles, k by k.
constexpr int ref_side = 16;
constexpr int ref_per_thread = 4;
constexpr int ref_tile = ref_side * ref_per_thread;
constexpr int ref_k = 16;

/// Rows [first, first + ref_tile) and columns [k0, k0 + ref_k) of a rows x k matrix, zero outside.
template <class T>
__device__ void load_slice(double (*slice)[ref_tile + 1], const T* matrix, std::int64_t first,
                           std::int64_t rows, std::int64_t k0, std::int64_t k) {
  const int thread = threadIdx.y * ref_side + threadIdx.x;
  for (int i = thread; i < ref_tile * ref_k; i += ref_side * ref_side) {
    const int row = i / ref_k;
    const int column = i % ref_k;
    const bool inside = first + row < rows && k0 + column < k;
    slice[column][row] = inside ? as_double(matrix[(first + row) * k + k0 + column]) : 0.0;
  }
}

template <class W>
__global__ void __launch_bounds__(ref_side* ref_side)
    reference_kernel(const __nv_bfloat16* x, const W* w, double* out, std::int64_t m,
                     std::int64_t n, std::int64_t k) {
  __shared__ double x_slice[ref_k][ref_tile + 1];
  __shared__ double w_slice[ref_k][ref_tile + 1];
  const std::int64_t first_m = static_cast<std::int64_t>(blockIdx.y) * ref_tile;
  const std::int64_t first_n = static_cast<std::int64_t>(blockIdx.x) * ref_tile;
  double sum[ref_per_thread][ref_per_thread] = {};
  for (std::int64_t k0 = 0; k0 < k; k0 += ref_k) {
    load_slice(x_slice, x, first_m, m, k0, k);
    load_slice(w_slice, w, first_n, n, k0, k);
    __syncthreads();
    for (int column = 0; column < ref_k; ++column) {
      for (int i = 0; i < ref_per_thread; ++i) {
        for (int j = 0; j < ref_per_thread; ++j) {
          sum[i][j] += x_slice[column][threadIdx.y + i * ref_side] *
                       w_slice[column][threadIdx.x + j * ref_side];
        }
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < ref_per_thread; ++i) {
    for (int j = 0; j < ref_per_thread; ++j) {
      const std::int64_t row = first_m + threadIdx.y + i * ref_side;
      const std::int64_t column = first_n + threadIdx.x + j * ref_side;
      if (row < m && column < n) out[row * n + column] = sum[i][j];
    }
  }
}

unsigned ctas_for(std::int64_t count, std::int64_t per_cta) {
  return static_cast<unsigned>((count + per_cta - 1) / per_cta);
}

}  // namespace

void launch_empty(cudaStream_t stream) {
  empty_kernel<<<1, 32, 0, stream>>>();
  cuda::check_launch("empty_kernel");
}

void launch_flush(const void* data, std::size_t bytes, std::uint32_t* sink, int sm_count,
                  cudaStream_t stream) {
  const unsigned ctas = static_cast<unsigned>(sm_count * flush_ctas_per_sm);
  flush_kernel<<<ctas, flush_threads, 0, stream>>>(static_cast<const uint4*>(data),
                                                   bytes / sizeof(uint4), sink);
  cuda::check_launch("flush_kernel");
}

void launch_fill_bf16(void* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream) {
  if (count == 0) return;
  constexpr int threads = 256;
  constexpr unsigned max_ctas = 4096;
  const unsigned ctas = std::min(ctas_for(count, threads), max_ctas);
  fill_bf16_kernel<<<ctas, threads, 0, stream>>>(static_cast<__nv_bfloat16*>(data), count, seed);
  cuda::check_launch("fill_bf16_kernel");
}

void launch_cast_to_f32(const void* from, float* to, std::int64_t count, cudaStream_t stream) {
  if (count == 0) return;
  cast_to_f32_kernel<<<ctas_for(count, cast_threads * cast_values_per_thread), cast_threads, 0,
                       stream>>>(static_cast<const __nv_bfloat16*>(from), to, count);
  cuda::check_launch("cast_to_f32_kernel");
}

void launch_reference(const void* x, const void* w, DType w_dtype, double* out, std::int64_t m,
                      std::int64_t n, std::int64_t k, cudaStream_t stream) {
  if (m == 0 || n == 0) return;
  const dim3 grid(ctas_for(n, ref_tile), ctas_for(m, ref_tile));
  const dim3 block(ref_side, ref_side);
  const auto* activations = static_cast<const __nv_bfloat16*>(x);
  if (w_dtype == DType::bf16) {
    reference_kernel<<<grid, block, 0, stream>>>(activations, static_cast<const __nv_bfloat16*>(w),
                                                 out, m, n, k);
  } else {
    reference_kernel<<<grid, block, 0, stream>>>(activations, static_cast<const float*>(w), out, m,
                                                 n, k);
  }
  cuda::check_launch("reference_kernel");
}

}  // namespace slimgemm::judge
