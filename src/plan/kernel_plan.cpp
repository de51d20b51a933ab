// SPDX-License-Identifier: Apache-2.0
#include "plan/kernel_plan.hpp"

#include "plan/cost_model.hpp"
#include "plan/tuning_table.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimgemm::plan {
namespace {

std::string number(std::int64_t value) { return std::to_string(value); }

std::string decimals(double value, std::size_t digits) {
  const double unit = std::pow(10, static_cast<double>(digits));
  const std::string text = std::to_string(std::round(value * unit) / unit);
  return text.substr(0, text.find('.') + 1 + digits);
}

std::string describe(const Problem& problem) {
  return "n=" + number(problem.rows) + " k=" + number(problem.k) + " m=" + number(problem.m) +
         " in " + name(problem.encoding);
}

/// The plan with an instance that can serve the problem; its reason begins with `words`.
KernelPlan lay_out(const Instance& instance, double estimated_us, const Problem& problem,
                   const GpuFacts& gpu, const std::string& words) {
  KernelPlan plan;
  plan.instance = instance;
  plan.estimated_us = estimated_us;
  const Occupancy o = occupancy(instance, problem, gpu);
  if (instance.family == Family::stream) {
    const StreamConfig& c = instance.stream();
    const int tokens = cta_tokens(c);
    plan.threads = cta_threads(c);
    plan.cluster = c.cluster;
    plan.x_rows = static_cast<int>(std::min<std::int64_t>(problem.m, tokens));
    plan.smem_bytes = static_cast<int>(
        stream_smem_bytes(c, plan.x_rows, (problem.k + format::tile_k - 1) / format::tile_k));
  } else {
    const TileConfig& c = instance.tile();
    plan.threads = cta_threads(c);
    plan.cluster = c.cluster * c.x_sharers;
    plan.x_rows = static_cast<int>(tile_x_rows(problem.m, o.token_blocks));
    plan.smem_bytes = tile_layout(c).total;
  }
  plan.grid_x = o.groups * plan.cluster;
  plan.grid_y = o.token_blocks;
  plan.reason = words + ": " + number(o.ctas) + " CTAs, " + number(o.ctas_per_sm) + " an SM, " +
                number(o.waves) + (o.waves == 1 ? " wave" : " waves");
  return plan;
}

std::string estimate_words(double us) { return "estimated " + decimals(us, 1) + " us"; }

std::string measured_words(const TunedPlan& tuned, const Problem& problem) {
  return "tuned, measured " + decimals(tuned.measured_us, 2) + " us" +
         (tuned.m == problem.m ? "" : " at m=" + number(tuned.m));
}

}  // namespace

std::vector<Instance> instances_of(Encoding encoding) {
  std::vector<Instance> instances;
  for (std::size_t i = 0; i < stream_count; ++i) {
    if (stream_table[i].encoding == encoding) instances.push_back({Family::stream, i});
  }
  for (std::size_t i = 0; i < tile_count; ++i) {
    if (tile_table[i].encoding == encoding) instances.push_back({Family::tile, i});
  }
  return instances;
}

std::string instance_name(const Instance& instance) {
  if (instance.family == Family::stream) {
    const StreamConfig& c = instance.stream();
    return std::string("stream/") + name(c.encoding) + "/t" + number(c.token_tiles) + "_r" +
           number(c.row_tiles) + "_k" + number(c.k_warps) + "_s" + number(c.stages) + "_c" +
           number(c.cluster) + "_m" + number(c.min_ctas) +
           (c.exception_warps > 0 ? "_e" + number(c.exception_warps) : "") +
           (c.x_access == XAccess::any ? "_any" : "") + (c.by_rows ? "_rows" : "");
  }
  const TileConfig& c = instance.tile();
  return std::string("tile/") + name(c.encoding) + "/n" + number(c.tokens) + "_b" +
         number(c.row_blocks) + "_g" + number(c.k_groups) + "_x" + number(c.x_stages) + "_w" +
         number(c.w_stages) + "_c" + number(c.cluster) +
         (c.x_sharers > 1 ? "_s" + number(c.x_sharers) : "");
}

std::int64_t launched_ctas(const KernelPlan& plan, const GpuFacts& gpu) {
  const std::int64_t tiles = plan.grid_x * plan.grid_y;
  const bool persistent =
      plan.instance.family == Family::tile && is_persistent(plan.instance.tile());
  return persistent ? std::min<std::int64_t>(tiles, gpu.sm_count / plan.cluster * plan.cluster)
                    : tiles;
}

KernelPlan plan_instance(const Instance& instance, const Problem& problem, const GpuFacts& gpu) {
  const double us = estimate_us(instance, problem, gpu);
  if (!std::isfinite(us)) {
    throw Error(ErrorCode::unsupported,
                instance_name(instance) + " can't serve " + describe(problem));
  }
  return lay_out(instance, us, problem, gpu, estimate_words(us));
}

KernelPlan plan_by_model(const Problem& problem, const GpuFacts& gpu) {
  const std::vector<Instance> candidates = instances_of(problem.encoding);
  const Instance* best = nullptr;
  double best_us = std::numeric_limits<double>::infinity();
  for (const Instance& candidate : candidates) {
    const double us = estimate_us(candidate, problem, gpu);
    if (us < best_us) {
      best_us = us;
      best = &candidate;
    }
  }
  if (best == nullptr) {
    throw Error(ErrorCode::unsupported, "no GPU kernel serves " + describe(problem) +
                                            ": with so many tokens, split x into several calls");
  }
  KernelPlan plan = lay_out(*best, best_us, problem, gpu, estimate_words(best_us));
  plan.reason += ", lowest of " + number(static_cast<std::int64_t>(candidates.size())) +
                 " instances" +
                 (problem.x_aligned ? "" : ", few of which take x of this alignment");
  return plan;
}

KernelPlan plan_kernel(const Problem& problem, const GpuFacts& gpu, const TuningTable& table) {
  if (const TunedPlan* tuned = table.find(problem, gpu)) {
    const double us = estimate_us(tuned->instance, problem, gpu);
    if (std::isfinite(us)) {
      return lay_out(tuned->instance, us, problem, gpu, measured_words(*tuned, problem));
    }
  }
  return plan_by_model(problem, gpu);
}

KernelPlan plan_kernel(const Problem& problem, const GpuFacts& gpu) {
  return plan_kernel(problem, gpu, shipped_tuning_table());
}

}  // namespace slimgemm::plan
