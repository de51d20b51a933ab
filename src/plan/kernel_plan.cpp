// SPDX-License-Identifier: Apache-2.0
#include "plan/kernel_plan.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimgemm::plan {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::string fixed(double value) {
  std::string text = std::to_string(std::round(value * 10) / 10);
  return text.substr(0, text.find('.') + 2);
}

/// How an instance lies on the machine.
struct Occupancy {
  std::int64_t groups;        // CTAs (or clusters) along the output features
  std::int64_t token_blocks;
  std::int64_t ctas;
  std::int64_t ctas_per_sm;
  std::int64_t resident;      // CTAs that run at the same time
  std::int64_t waves;
};

Occupancy occupancy(const StreamConfig& c, const Problem& problem, const GpuFacts& gpu) {
  Occupancy o{};
  const int x_rows = static_cast<int>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  const int smem = stream_layout(c, x_rows).total + 1024;
  o.groups = ceil_div(ceil_div(problem.rows, format::tile_rows), cta_row_tiles(c));
  o.token_blocks = ceil_div(problem.m, cta_tokens(c));
  o.ctas = o.groups * c.cluster * o.token_blocks;
  o.ctas_per_sm = std::min<std::int64_t>(c.min_ctas, gpu.smem_per_sm_bytes / smem);
  o.resident = gpu.sm_count * o.ctas_per_sm;
  // One cluster never spans two GPCs; of an H200's 132 SMs, clusters of 8 reach 120.
  if (c.cluster > 2) o.resident = o.resident * 120 / 132 / c.cluster * c.cluster;
  o.waves = ceil_div(o.ctas, std::max<std::int64_t>(o.resident, 1));
  return o;
}

}  // namespace

std::string instance_name(const StreamConfig& c) {
  const auto n = [](int value) { return std::to_string(value); };
  return std::string("stream/") + name(c.encoding) + "/t" + n(c.token_tiles) + "_r" +
         n(c.row_tiles) + "x" + n(c.row_groups) + "_k" + n(c.k_warps) + "_s" + n(c.stages) + "_x" +
         n(c.x_slots) + "_c" + n(c.cluster);
}

double estimate_us(const StreamConfig& c, const Problem& problem, const GpuFacts& gpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (c.encoding != problem.encoding) return infinity;
  const std::int64_t k_tiles = ceil_div(problem.k, format::tile_k);
  if (k_tiles < c.cluster) return infinity;
  const Occupancy o = occupancy(c, problem, gpu);
  if (o.ctas_per_sm < 1) return infinity;

  const auto row_tiles = ceil_div(problem.rows, format::tile_rows);
  const double tile = tile_bytes(c.encoding);
  const double weights = static_cast<double>(row_tiles) * k_tiles * tile;
  const double cta_k_tiles = std::ceil(static_cast<double>(k_tiles) / c.cluster);
  const double cta_weights = cta_row_tiles(c) * cta_k_tiles * tile;
  const double x_rows = static_cast<double>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  const double cta_x = x_rows * cta_k_tiles * 128;

  // Weights come from HBM once; further token blocks find most of them in L2.
  const double hbm_us = weights / (gpu.memory_tb_s * 1e6);
  const double l2_us = static_cast<double>(o.ctas) * (cta_weights + cta_x) / 5.5e6;
  // The busiest SM takes in its CTAs' weights and x at the rate its loads in flight allow.
  const std::int64_t in_a_wave = std::min(o.ctas, o.resident);
  const auto ctas_on_sm =
      static_cast<double>(ceil_div(in_a_wave, gpu.sm_count) * (o.waves - 1) +
                          ceil_div(std::max<std::int64_t>(o.ctas - (o.waves - 1) * o.resident, 1),
                                   gpu.sm_count));
  const double in_flight = static_cast<double>(std::min(ceil_div(o.ctas, gpu.sm_count), o.ctas_per_sm)) *
                           consumer_warps(c) * c.stages * c.row_tiles * tile;
  const double rate_gb_s = std::min(gpu.sm_ingress_gb_s, in_flight / 2.0e3);  // 2 us, loaded
  const double sm_us = ctas_on_sm * (cta_weights + cta_x) / (rate_gb_s * 1e3);
  // Tensor core time of the busiest SM: mma.sync at about 60 % of the peak, 4 TFLOP/s an SM.
  const double terms = c.encoding == Encoding::raw32 ? 3 : 1;
  const double math_us = ctas_on_sm * terms * 2.0 * cta_row_tiles(c) * 16 * cta_tokens(c) *
                         cta_k_tiles * 64 / 4.0e6;
  // Start, x's first chunk, in-CTA reduction over k_warps, cluster exchange.
  const double fixed_us = 1.4 + 0.02 * c.k_warps + (c.cluster > 1 ? 0.8 : 0.0) +
                          0.3 * static_cast<double>(o.waves - 1);
  return std::max({hbm_us, l2_us, sm_us, math_us}) + fixed_us;
}

StreamPlan plan_instance(std::size_t index, const Problem& problem, const GpuFacts& gpu) {
  const StreamConfig& c = stream_table[index];
  StreamPlan plan;
  plan.index = index;
  plan.estimated_us = estimate_us(c, problem, gpu);
  if (!std::isfinite(plan.estimated_us)) {
    throw Error(ErrorCode::unsupported, instance_name(c) + " can't serve n=" +
                                            std::to_string(problem.rows) + " k=" +
                                            std::to_string(problem.k) + " in " +
                                            name(problem.encoding));
  }
  const Occupancy o = occupancy(c, problem, gpu);
  plan.grid_x = o.groups * c.cluster;
  plan.grid_y = o.token_blocks;
  if (plan.grid_y > 65535) {
    throw Error(ErrorCode::unsupported,
                "m is " + std::to_string(problem.m) + ": one call takes at most " +
                    std::to_string(65535LL * cta_tokens(c)) + " tokens on the GPU; split x");
  }
  plan.x_rows = static_cast<int>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  plan.layout = stream_layout(c, plan.x_rows);
  plan.reason = "estimated " + fixed(plan.estimated_us) + " us: " + std::to_string(o.ctas) +
                " CTAs, " + std::to_string(o.ctas_per_sm) + " an SM, " + std::to_string(o.waves) +
                (o.waves == 1 ? " wave" : " waves");
  return plan;
}

StreamPlan plan_stream(const Problem& problem, const GpuFacts& gpu) {
  std::size_t best = stream_count;
  double best_us = std::numeric_limits<double>::infinity();
  int candidates = 0;
  for (std::size_t i = 0; i < stream_count; ++i) {
    const double us = estimate_us(stream_table[i], problem, gpu);
    if (std::isfinite(us)) ++candidates;
    if (us < best_us) {
      best_us = us;
      best = i;
    }
  }
  if (best == stream_count) {
    throw Error(ErrorCode::unsupported, "no stream kernel serves n=" +
                                            std::to_string(problem.rows) +
                                            " k=" + std::to_string(problem.k));
  }
  StreamPlan plan = plan_instance(best, problem, gpu);
  plan.reason += ", lowest of " + std::to_string(candidates) + " instances";
  return plan;
}

}  // namespace slimgemm::plan
