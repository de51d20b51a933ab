// SPDX-License-Identifier: Apache-2.0
// Turns a CUDA runtime status into a slimgemm::Error that names the call.
#pragma once

#include <slimgemm/error.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace slimgemm::cuda {

inline ErrorCode error_code(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::out_of_memory;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorStubLibrary:
      return ErrorCode::unsupported;
    default:
      return ErrorCode::device_error;
  }
}

/// "cudaErrorInvalidValue (invalid argument)".
inline std::string describe(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")";
}

/// Throws Error if `status` is not cudaSuccess. `call` says what was done, with its values where
/// they help: "cudaMalloc of 4096 bytes". A recoverable error is cleared, so that it does not show
/// up again at the next launch.
inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw Error(error_code(status), std::string(call) + " failed: " + describe(status));
}
inline void check(cudaError_t status, const std::string& call) { check(status, call.c_str()); }

/// After a kernel launch `<<<>>>`: throws if it was refused. `kernel` is its name.
inline void check_launch(const char* kernel) {
  const cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) {
    throw Error(error_code(status),
                std::string("launch of ") + kernel + " failed: " + describe(status));
  }
}

}  // namespace slimgemm::cuda
