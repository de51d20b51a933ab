// SPDX-License-Identifier: Apache-2.0
#include "soak_kernels.hpp"

#include <algorithm>

namespace slimgemm::bench {
namespace {

constexpr int check_threads = 256;
constexpr std::size_t ctas_max = 64;

__device__ bool differ(const uint4& a, const uint4& b) {
  return ((a.x ^ b.x) | (a.y ^ b.y) | (a.z ^ b.z) | (a.w ^ b.w)) != 0;
}

__global__ void __launch_bounds__(check_threads)
    soak_check_kernel(uint4* out, const uint4* expected, std::size_t out_vectors, uint4* x,
                      const uint4* x_source, std::size_t x_vectors, SoakTally* tally) {
  cudaTriggerProgrammaticLaunchCompletion();
  const uint4 poison{~0u, ~0u, ~0u, ~0u};
  const std::size_t first = static_cast<std::size_t>(blockIdx.x) * check_threads + threadIdx.x;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * check_threads;
  for (std::size_t i = first; i < x_vectors; i += step) x[i] = poison;
  bool differs = false;
  for (std::size_t i = first; i < out_vectors; i += step) {
    if (differ(out[i], expected[i])) {
      differs = true;
      atomicMin(&tally->first_byte, static_cast<unsigned long long>(i * sizeof(uint4)));
    }
    out[i] = poison;
  }
  __threadfence();  // others can see the poison before x comes back
  const bool dirty = __syncthreads_or(differs) != 0;
  for (std::size_t i = first; i < x_vectors; i += step) x[i] = x_source[i];
  if (threadIdx.x != 0) return;
  if (dirty) atomicOr(&tally->dirty, 1u);
  __threadfence();
  if (atomicAdd(&tally->ctas_done, 1u) != gridDim.x - 1) return;
  // The last CTA; the next check starts when this one is complete.
  if (atomicExch(&tally->dirty, 0u) != 0) {
    if (tally->differing == 0) tally->first_check = tally->checks;
    ++tally->differing;
  }
  ++tally->checks;
  tally->ctas_done = 0;
}

}  // namespace

void launch_soak_check(const SoakCheck& check, cudaStream_t stream) {
  const std::size_t out_vectors = check.out_bytes / sizeof(uint4);
  const std::size_t x_vectors = check.x_bytes / sizeof(uint4);
  const std::size_t ctas =
      std::clamp((std::max(out_vectors, x_vectors) + check_threads - 1) / check_threads,
                 std::size_t{1}, ctas_max);
  soak_check_kernel<<<static_cast<unsigned>(ctas), check_threads, 0, stream>>>(
      static_cast<uint4*>(check.out), static_cast<const uint4*>(check.expected), out_vectors,
      static_cast<uint4*>(check.x), static_cast<const uint4*>(check.x_source), x_vectors,
      check.tally);
  cuda::check_launch("soak_check_kernel");
}

}  // namespace slimgemm::bench
