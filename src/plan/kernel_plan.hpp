// SPDX-License-Identifier: Apache-2.0
// From a problem to the kernel instance that serves it: a cost model over the closed list of
// kernel_table.hpp. Pure host C++.
#pragma once

#include "plan/kernel_table.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace slimgemm::plan {

/// What the plan needs to know of the GPU, read off the device.
struct GpuFacts {
  int sm_count = 132;
  int smem_per_sm_bytes = 228 * 1024;
  double memory_tb_s = 4.4;     ///< streaming read, measured (docs/decisions/gpu-plan.md)
  double sm_ingress_gb_s = 95;  ///< most that one SM takes in
};

/// One call: `rows` output features of a matrix with k columns, for m tokens.
struct Problem {
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  Encoding encoding = Encoding::split12;
};

struct StreamPlan {
  std::size_t index = 0;  ///< of stream_table
  std::int64_t grid_x = 0;  ///< CTAs along the output features, times the cluster
  std::int64_t grid_y = 0;  ///< token blocks
  int x_rows = 0;
  StreamLayout layout{};
  double estimated_us = 0;
  std::string reason;

  [[nodiscard]] const StreamConfig& config() const { return stream_table[index]; }
};

/// "stream/split12/t1_r1x1_k8_s4_x4_c1": every parameter of the instance.
std::string instance_name(const StreamConfig& config);

/// Estimated time of one instance in microseconds; infinity if it can't serve the problem.
double estimate_us(const StreamConfig& config, const Problem& problem, const GpuFacts& gpu);

/// How one instance serves a problem. Errors: unsupported if it can't, or if the grid would be too
/// large.
StreamPlan plan_instance(std::size_t index, const Problem& problem, const GpuFacts& gpu);

/// The instance with the lowest estimate. Errors: unsupported if none serves the problem.
StreamPlan plan_stream(const Problem& problem, const GpuFacts& gpu);

}  // namespace slimgemm::plan
