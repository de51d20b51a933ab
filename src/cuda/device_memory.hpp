// SPDX-License-Identifier: Apache-2.0
// Owning device memory, whose device a pointer is, and a guard for the current device.
#pragma once

#include "cuda/check.hpp"
#include "support/refuse.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

namespace slimgemm::cuda {

/// Makes a device current for a scope. Switching is legal while a stream captures.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    check(cudaGetDevice(&previous_), "cudaGetDevice");
    if (previous_ != device) {
      check(cudaSetDevice(device), "cudaSetDevice to " + std::to_string(device));
      switched_ = true;
    }
  }
  ~DeviceGuard() {
    if (switched_) cudaSetDevice(previous_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
  bool switched_ = false;
};

/// The device that owns the memory; legal while a stream captures. Errors: invalid_argument, naming
/// `what` and, with `way_out`, what to do instead.
inline int device_of(const void* memory, const char* what, const char* way_out) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, memory);
  if (status != cudaErrorInvalidValue) check(status, "cudaPointerGetAttributes");
  const bool on_device = status == cudaSuccess && (attributes.type == cudaMemoryTypeDevice ||
                                                   attributes.type == cudaMemoryTypeManaged);
  if (!on_device) {
    static_cast<void>(cudaGetLastError());
    refuse_argument(std::string(what) + " is not memory of a CUDA device: " + way_out);
  }
  return attributes.device;
}

/// Memory from cudaMalloc, aligned to 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc of " + std::to_string(bytes) + " bytes");
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }
  [[nodiscard]] std::size_t size_bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace slimgemm::cuda
