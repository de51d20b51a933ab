// SPDX-License-Identifier: Apache-2.0
// The judge's own kernels. Each call launches on `stream`, neither allocates nor waits, and throws
// Error if the launch was refused.
#pragma once

#include <slimgemm/types.hpp>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace slimgemm::judge {

/// One CTA of one warp that does nothing.
void launch_empty(cudaStream_t stream);

/// Reads `bytes` (a multiple of 16) so that nothing else stays in the L2.
void launch_flush(const void* data, std::size_t bytes, std::uint32_t* sink, int sm_count,
                  cudaStream_t stream);

/// Writes `count` BF16 values in [-1, 1) that follow from the index and the seed.
void launch_fill_bf16(void* data, std::int64_t count, std::uint32_t seed, cudaStream_t stream);

/// to[i] = from[i] as FP32, from BF16; both 16-byte aligned.
void launch_cast_to_f32(const void* from, float* to, std::int64_t count, cudaStream_t stream);

/// Several ways to read memory once, as fast as it goes: plain loads and bulk copies into shared
/// memory. `bytes` is a multiple of 16.
int stream_read_variants();
std::string stream_read_name(int variant);
void launch_stream_read(int variant, const void* data, std::size_t bytes, std::uint32_t* sink,
                        int sm_count, cudaStream_t stream);

/// out[i * n + j] = sum over k of x[i, k] * w[j, k], in FP64. x: m x k BF16; w: n x k.
void launch_reference(const void* x, const void* w, DType w_dtype, double* out, std::int64_t m,
                      std::int64_t n, std::int64_t k, cudaStream_t stream);

}  // namespace slimgemm::judge
