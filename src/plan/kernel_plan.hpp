// SPDX-License-Identifier: Apache-2.0
// From a problem to the kernel instance that serves it, one of the closed list of
// kernel_table.hpp: by the table of tuned plans, or by a cost model. Pure host C++.
#pragma once

#include "plan/kernel_table.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::plan {

/// What the plan needs to know of the GPU, read off the device.
struct GpuFacts {
  int sm_count = 132;
  int smem_per_sm_bytes = 228 * 1024;
};

/// One call: `rows` output features of a matrix with k columns, for m tokens.
struct Problem {
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  Encoding encoding = Encoding::split12;
  bool x_aligned = true;  ///< base and row stride of x are multiples of 16 bytes
};

enum class Family { stream, tile };

/// One instance of the closed list: an entry of stream_table or of tile_table.
struct Instance {
  Family family = Family::stream;
  std::size_t index = 0;

  [[nodiscard]] const StreamConfig& stream() const { return stream_table[index]; }
  [[nodiscard]] const TileConfig& tile() const { return tile_table[index]; }
  friend bool operator==(const Instance&, const Instance&) = default;
};

/// Every instance of an encoding.
std::vector<Instance> instances_of(Encoding encoding);

/// Every parameter of an instance: "stream/split12/t1_r2_k8_s4_c1_m1_e2" (token tiles, row tiles, k
/// warps, stages, cluster, CTAs an SM, exception warps; "_any" for any alignment of x, "_rows" for
/// by_rows) or "tile/split12/n128_b1_g2_x10_w3_c1" (tokens, row blocks, k groups, x stages, w
/// stages, cluster; "_s2" for two x_sharers).
std::string instance_name(const Instance& instance);

/// A tile kernel with more token blocks than this goes through them in groups (rasterisation).
inline constexpr std::int64_t token_block_group = 8;

/// How an instance serves a problem.
struct KernelPlan {
  Instance instance;
  /// CTAs along the output features, times the cluster, as if each had one tile. (A tile kernel is
  /// launched with token blocks along x, so that neighbours share weights, a persistent one as
  /// launched_ctas() says.)
  std::int64_t grid_x = 0;
  std::int64_t grid_y = 0;  ///< token blocks
  int threads = 0;
  int cluster = 1;  ///< CTAs that split k or share x
  int smem_bytes = 0;
  int x_rows = 0;  ///< tokens of x that a CTA keeps a k tile, at most the instance's
  double estimated_us = 0;
  std::string reason;
};

/// Estimated time in microseconds; infinity if the instance can't serve the problem.
double estimate_us(const Instance& instance, const Problem& problem, const GpuFacts& gpu);

/// CTAs that a plan launches: of a persistent kernel, which goes through its tiles, at most one an
/// SM.
std::int64_t launched_ctas(const KernelPlan& plan, const GpuFacts& gpu);

/// The plan with a given instance. Errors: unsupported if it can't serve the problem.
KernelPlan plan_instance(const Instance& instance, const Problem& problem, const GpuFacts& gpu);

/// The plan with the lowest estimate. Errors: unsupported if no instance serves the problem.
KernelPlan plan_by_model(const Problem& problem, const GpuFacts& gpu);

/// Instances with the same order of additions along k give a row the same bits: tile kernels with
/// equal k groups and clusters; a stream kernel shares its order with no other. This is the order,
/// named by an instance that has it, with the lowest estimates for a layer's usual token counts
/// (layer.m is not looked at).
Instance choose_k_order(const Problem& layer, const GpuFacts& gpu);

/// The plan with the lowest estimate of those with the k order of `order`. Errors: unsupported if
/// none of them serves the problem.
KernelPlan plan_in_k_order(const Instance& order, const Problem& problem, const GpuFacts& gpu);

class TuningTable;

/// The plan with the instance that `table` names, or where it has none that can serve the problem,
/// plan_by_model. Errors: unsupported if no instance serves the problem.
KernelPlan plan_kernel(const Problem& problem, const GpuFacts& gpu, const TuningTable& table);
/// With the table that the library was built with.
KernelPlan plan_kernel(const Problem& problem, const GpuFacts& gpu);

}  // namespace slimgemm::plan
