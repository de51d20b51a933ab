// SPDX-License-Identifier: Apache-2.0
// The GPU behind Linear: weights in device memory, a kernel chosen for every call.
#pragma once

#include "cuda/device_memory.hpp"
#include "cuda/stream_kernel_args.hpp"
#include "format/device_image.hpp"
#include "linear/backend.hpp"
#include "plan/kernel_plan.hpp"

#include <array>
#include <cstdint>
#include <optional>

namespace slimgemm::cuda {

class CudaBackend final : public Linear::Backend {
 public:
  CudaBackend(const PackedMatrix& weights, const LinearOptions& options);
  /// Over an image in device memory that the caller owns.
  CudaBackend(const ImageLayout& layout, const void* image, const LinearOptions& options);

  void run(const RunArgs& args) const override;
  [[nodiscard]] Plan plan(std::int64_t rows, std::int64_t m) const override;

  /// Runs with a given plan, whatever plan_kernel would choose: for tests and tuning.
  void run_with(const plan::KernelPlan& plan, const RunArgs& args) const;

  /// The problem of a call; x_aligned: base and row stride of x are multiples of 16 bytes.
  [[nodiscard]] plan::Problem problem(std::int64_t rows, std::int64_t m, bool x_aligned) const;
  [[nodiscard]] const plan::GpuFacts& gpu() const { return gpu_; }

 private:
  [[nodiscard]] plan::KernelPlan choose(const plan::Problem& problem) const;
  [[nodiscard]] std::int64_t weight_bytes(std::int64_t rows) const;
  [[nodiscard]] int k_tiles() const { return static_cast<int>(offsets_.k_tiles); }
  [[nodiscard]] ExceptionView exceptions() const;
  void launch_stream(const plan::KernelPlan& plan, const RunArgs& args) const;
  void launch_tile(const plan::KernelPlan& plan, const RunArgs& args) const;
  void launch(const plan::KernelPlan& plan, dim3 grid, void* kernel_args, void* stream) const;

  int device_;
  plan::GpuFacts gpu_;
  Encoding encoding_;
  format::ImageOffsets offsets_;
  DecodeArgs decode_;
  bool programmatic_launch_;
  /// With LinearOptions::batch_invariant: the k order of all calls, for aligned x and any other.
  std::optional<std::array<plan::Instance, 2>> k_orders_;
  std::int64_t more_groups_;  // of exceptions: those that no head has room for
  DeviceMemory owned_;        // empty over a caller's image
  const unsigned char* image_;
};

}  // namespace slimgemm::cuda
