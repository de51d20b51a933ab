// SPDX-License-Identifier: Apache-2.0
// The GPU behind Linear: weights in device memory, a kernel chosen for every call.
#pragma once

#include "cuda/device_memory.hpp"
#include "linear/backend.hpp"
#include "plan/kernel_plan.hpp"

#include <cstdint>

namespace slimgemm::cuda {

class CudaBackend final : public Linear::Backend {
 public:
  CudaBackend(const PackedMatrix& weights, int device);

  void run(const RunArgs& args) const override;
  [[nodiscard]] Plan plan(std::int64_t rows, std::int64_t m) const override;

  /// Runs with a given plan, whatever plan_kernel would choose: for tests and tuning.
  void run_with(const plan::KernelPlan& plan, const RunArgs& args) const;

  /// The problem of a call; x_aligned: base and row stride of x are multiples of 16 bytes.
  [[nodiscard]] plan::Problem problem(std::int64_t rows, std::int64_t m, bool x_aligned) const;
  [[nodiscard]] const plan::GpuFacts& gpu() const { return gpu_; }

 private:
  [[nodiscard]] std::int64_t weight_bytes(std::int64_t rows) const;
  void launch_stream(const plan::KernelPlan& plan, const RunArgs& args) const;
  void launch_tile(const plan::KernelPlan& plan, const RunArgs& args) const;

  int device_;
  plan::GpuFacts gpu_;
  Encoding encoding_;
  std::uint32_t row_tiles_;
  int k_tiles_;
  float scale_;  // of the decoded weights
  float inverse_scale_;
  bool patchable_;  // every exception is a BF16 number in the scale of the decoded weights
  bool nonfinite_;
  std::int64_t group_count_;
  DeviceMemory tiles_;
  DeviceMemory groups_;
  DeviceMemory extra_begin_;
};

}  // namespace slimgemm::cuda
