// SPDX-License-Identifier: Apache-2.0
// Owners of CUDA objects: each frees what it holds, and says the size or the call when making
// fails.
#pragma once

#include "cuda/check.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>

namespace slimgemm::judge {

/// Device memory from cudaMalloc (at least 256-byte aligned). 0 bytes: no memory, a null pointer.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* pointer = nullptr;
    cuda::check(cudaMalloc(&pointer, bytes),
                "cudaMalloc of " + std::to_string(bytes) + " bytes of device memory");
    memory_.reset(pointer);
  }
  [[nodiscard]] void* data() const { return memory_.get(); }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(memory_.get());
  }
  [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(void* pointer) const { static_cast<void>(cudaFree(pointer)); }
  };
  std::unique_ptr<void, Free> memory_;
  std::size_t bytes_ = 0;
};

/// Owns a CUDA handle that `destroy` ends.
template <class Handle, cudaError_t (*destroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  [[nodiscard]] Handle get() const { return handle_.get(); }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  struct Destroy {
    void operator()(std::remove_pointer_t<Handle>* handle) const {
      static_cast<void>(destroy(handle));
    }
  };
  std::unique_ptr<std::remove_pointer_t<Handle>, Destroy> handle_;
};

using Stream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using Event = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

/// A stream that also orders itself after the legacy default stream, so that a recorded call that
/// strays onto that stream is refused during capture rather than run unseen.
inline Stream make_stream() {
  cudaStream_t stream = nullptr;
  cuda::check(cudaStreamCreate(&stream), "cudaStreamCreate");
  return Stream(stream);
}

inline Event make_event() {
  cudaEvent_t event = nullptr;
  cuda::check(cudaEventCreate(&event), "cudaEventCreate");
  return Event(event);
}

}  // namespace slimgemm::judge
