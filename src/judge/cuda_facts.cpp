// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_facts.hpp"

#include "cuda/check.hpp"
#include "judge/cuda_versions.hpp"

#include <fmt/format.h>

namespace slimgemm::judge {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace

CudaFacts cuda_facts() {
  CudaFacts facts;
  facts.toolkit = version_text(CUDART_VERSION);
  facts.cublas = blas_version();
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver != 0) {
    facts.driver_cuda = version_text(driver);
  }
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    facts.problem = cuda::describe(status);
    static_cast<void>(cudaGetLastError());
    return facts;
  }
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    const cudaError_t read = cudaGetDeviceProperties(&properties, i);
    if (read != cudaSuccess) {
      facts.problem = fmt::format("device {}: {}", i, cuda::describe(read));
      static_cast<void>(cudaGetLastError());
      continue;
    }
    facts.devices.push_back({i, properties.name,
                             fmt::format("{}.{}", properties.major, properties.minor),
                             properties.multiProcessorCount, properties.totalGlobalMem,
                             properties.major == 9 && properties.minor == 0});
  }
  return facts;
}

}  // namespace slimgemm::judge
