// SPDX-License-Identifier: Apache-2.0
// Plans under which a row of the output has the same bits whatever m is.
#include "plan/kernel_plan.hpp"

#include <slimgemm/error.hpp>

#include <cmath>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::plan {
namespace {

/// Token counts whose estimates choose the order: the geometric mean over them is lowest.
constexpr std::int64_t weighed_tokens[] = {1, 8, 16, 32, 64, 128, 256};

bool same_k_order(const Instance& a, const Instance& b) {
  if (a.family != b.family) return false;
  if (a.family == Family::stream) return a.index == b.index;
  return a.tile().k_groups == b.tile().k_groups && a.tile().cluster == b.tile().cluster;
}

struct Choice {
  std::optional<Instance> instance;
  double us = std::numeric_limits<double>::infinity();
};

/// The fastest of the candidates that add in the order of `order`.
Choice fastest(const std::vector<Instance>& candidates, const Instance& order,
               const Problem& problem, const GpuFacts& gpu) {
  Choice best;
  for (const Instance& candidate : candidates) {
    if (!same_k_order(candidate, order)) continue;
    const double us = estimate_us(candidate, problem, gpu);
    if (us < best.us) best = {candidate, us};
  }
  return best;
}

/// Geometric mean over weighed_tokens; infinite if one of them can't be served.
double mean_us(const std::vector<Instance>& candidates, const Instance& order, Problem problem,
               const GpuFacts& gpu) {
  double sum = 0;
  for (const std::int64_t m : weighed_tokens) {
    problem.m = m;
    sum += std::log(fastest(candidates, order, problem, gpu).us);
  }
  return std::exp(sum / static_cast<double>(std::size(weighed_tokens)));
}

std::string describe(const Instance& order) {
  if (order.family == Family::stream) return "that of " + instance_name(order);
  return "k groups " + std::to_string(order.tile().k_groups) + ", cluster " +
         std::to_string(order.tile().cluster);
}

}  // namespace

Instance choose_k_order(const Problem& layer, const GpuFacts& gpu) {
  const std::vector<Instance> candidates = instances_of(layer.encoding);
  Instance best = candidates.front();
  double best_us = std::numeric_limits<double>::infinity();
  for (const Instance& candidate : candidates) {
    const double us = mean_us(candidates, candidate, layer, gpu);
    if (us < best_us) {
      best_us = us;
      best = candidate;
    }
  }
  return best;
}

KernelPlan plan_in_k_order(const Instance& order, const Problem& problem, const GpuFacts& gpu) {
  const Choice choice = fastest(instances_of(problem.encoding), order, problem, gpu);
  if (!choice.instance) {
    throw Error(ErrorCode::unsupported,
                "no GPU kernel with the k order of " + instance_name(order) +
                    " serves n=" + std::to_string(problem.rows) +
                    " k=" + std::to_string(problem.k) + " m=" + std::to_string(problem.m) +
                    ": with so many tokens, split x into several calls");
  }
  KernelPlan plan = plan_instance(*choice.instance, problem, gpu);
  plan.reason += ", batch invariant: for all m the k order is " + describe(order);
  return plan;
}

}  // namespace slimgemm::plan
