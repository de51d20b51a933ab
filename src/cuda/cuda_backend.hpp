// SPDX-License-Identifier: Apache-2.0
// The GPU behind Linear: weights in device memory, a kernel chosen for every call.
#pragma once

#include "cuda/device_memory.hpp"
#include "cuda/stream_kernel_args.hpp"
#include "linear/backend.hpp"
#include "plan/kernel_plan.hpp"

#include <cstdint>

namespace slimgemm::cuda {

class CudaBackend final : public Linear::Backend {
 public:
  CudaBackend(const PackedMatrix& weights, int device);

  void run(const RunArgs& args) const override;
  [[nodiscard]] Plan plan(std::int64_t rows, std::int64_t m) const override;

  /// Runs with one instance of the kernel table, whatever the plan would choose: for tests and
  /// tuning. Errors: unsupported if the instance can't serve the call.
  void run_with(const plan::StreamPlan& plan, const RunArgs& args) const;

  [[nodiscard]] plan::Problem problem(std::int64_t rows, std::int64_t m) const {
    return {.rows = rows, .k = k, .m = m, .encoding = encoding_};
  }
  [[nodiscard]] const plan::GpuFacts& gpu() const { return gpu_; }

 private:
  [[nodiscard]] std::int64_t weight_bytes(std::int64_t rows) const;

  int device_;
  plan::GpuFacts gpu_;
  Encoding encoding_;
  std::uint32_t row_tiles_;
  int k_tiles_;
  float scale_;
  std::int64_t group_count_;
  DeviceMemory tiles_;
  DeviceMemory groups_;
  DeviceMemory extra_begin_;
};

}  // namespace slimgemm::cuda
