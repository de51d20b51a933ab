// SPDX-License-Identifier: Apache-2.0
// The constants are measurements on an H200, docs/decisions/gpu-plan.md.
#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimgemm::plan {
namespace {

constexpr double hbm_bytes_us = 4.4e6;        // streaming read
constexpr double l2_bytes_us = 5.5e6;         // all SMs together
constexpr double sm_ingress_bytes_us = 95e3;  // one SM, 57 bytes a clock
constexpr double tile_clock_mhz = 1620;       // under tensor load

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What both families have in common, per CTA.
struct CtaShape {
  int rows;
  int tokens;
  int cluster;
  int smem_bytes;
  int min_ctas;
};

CtaShape cta_shape(const Instance& instance, const Problem& problem) {
  if (instance.family == Family::stream) {
    const StreamConfig& c = instance.stream();
    const int x_rows = static_cast<int>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
    return {cta_row_tiles(c) * 16, cta_tokens(c), c.cluster, stream_layout(c, x_rows).total,
            c.min_ctas};
  }
  const TileConfig& c = instance.tile();
  return {c.row_blocks * 64, c.tokens, c.cluster, tile_layout(c).total, 1};
}

/// CTAs that the busiest SM works through.
double ctas_on_busiest_sm(const Occupancy& o, const GpuFacts& gpu) {
  const std::int64_t last_wave = o.ctas - (o.waves - 1) * o.resident;
  return static_cast<double>((o.waves - 1) * o.ctas_per_sm + ceil_div(last_wave, gpu.sm_count));
}

double estimate_stream_us(const StreamConfig& c, const Problem& problem, const GpuFacts& gpu,
                          const Occupancy& o) {
  const std::int64_t k_tiles = ceil_div(problem.k, format::tile_k);
  const double tile = tile_bytes(c.encoding);
  const double cta_k_tiles = static_cast<double>(ceil_div(k_tiles, c.cluster));
  const double cta_weights = cta_row_tiles(c) * cta_k_tiles * tile;
  const double x_rows = static_cast<double>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  const double cta_x = x_rows * cta_k_tiles * 128;

  // Weights come from HBM once; further token blocks find most of them in L2.
  const double hbm_us = static_cast<double>(ceil_div(problem.rows, 16) * k_tiles) * tile / hbm_bytes_us;
  const double l2_us = static_cast<double>(o.ctas) * (cta_weights + cta_x) / l2_bytes_us;
  // The busiest SM takes in its share as fast as its loads in flight and the wire allow.
  const double busiest = ctas_on_busiest_sm(o, gpu);
  const double in_flight =
      static_cast<double>(std::min(ceil_div(o.ctas, gpu.sm_count), o.ctas_per_sm)) *
      consumer_warps(c) * c.stages * c.row_tiles * tile;
  const double latency_us = 2.0;  // loaded
  const double rate = std::min(sm_ingress_bytes_us, in_flight / latency_us);
  const double sm_us = busiest * (cta_weights + cta_x) / rate;
  // Tensor core time of the busiest SM: mma.sync at about 60 % of the peak, 4 TFLOP/s an SM.
  const double terms = c.encoding == Encoding::raw32 ? 3 : 1;
  const double math_us = busiest * terms * 2.0 * cta_row_tiles(c) * 16 * cta_tokens(c) *
                         cta_k_tiles * 64 / 4.0e6;
  // Start, x's first chunk, reduction over k_warps, cluster exchange, further waves.
  const double fixed_us = 1.4 + 0.02 * c.k_warps + (c.cluster > 1 ? 0.8 : 0.0) +
                          0.3 * static_cast<double>(o.waves - 1);
  return std::max({hbm_us, l2_us, sm_us, math_us}) + fixed_us;
}

double estimate_tile_us(const TileConfig& c, const Problem& problem, const GpuFacts& gpu,
                        const Occupancy& o) {
  const std::int64_t k_tiles = ceil_div(problem.k, format::tile_k);
  const double tile = tile_bytes(c.encoding);
  const double cta_k_tiles = static_cast<double>(ceil_div(k_tiles, c.cluster));
  const double stage_bytes = c.row_blocks * 4 * tile + c.tokens * 128;
  // A k tile: the tensor cores take 2 clocks a token and row block, the wire its bytes.
  const double math_us = c.row_blocks * c.tokens * 2.0 / tile_clock_mhz;
  const double stage_us = std::max(math_us, stage_bytes / sm_ingress_bytes_us);
  const double loop_us = ctas_on_busiest_sm(o, gpu) * cta_k_tiles * stage_us;

  const double hbm_us = static_cast<double>(ceil_div(problem.rows, 16) * k_tiles) * tile / hbm_bytes_us;
  const double l2_us = static_cast<double>(o.ctas) * cta_k_tiles * stage_bytes / l2_bytes_us;
  const double out_us = static_cast<double>(problem.m * problem.rows) * 2 / 5e6;
  const double exchange_us = c.cluster > 1 ? 0.9 : partners(c) > 1 ? 0.4 : 0.1;
  return std::max({loop_us, hbm_us, l2_us}) + 1.6 + out_us + exchange_us +
         0.8 * static_cast<double>(o.waves - 1);
}

}  // namespace

Occupancy occupancy(const Instance& instance, const Problem& problem, const GpuFacts& gpu) {
  const CtaShape cta = cta_shape(instance, problem);
  Occupancy o{};
  o.groups = ceil_div(problem.rows, cta.rows);
  o.token_blocks = ceil_div(problem.m, cta.tokens);
  o.ctas = o.groups * cta.cluster * o.token_blocks;
  o.ctas_per_sm =
      std::min<std::int64_t>(cta.min_ctas, gpu.smem_per_sm_bytes / (cta.smem_bytes + 1024));
  // A cluster lies in one GPC: with one CTA an SM, clusters of 3 reach 117 of 132 SMs, clusters of 8
  // 120 (measured).
  const std::int64_t reach = cta.cluster <= 2   ? gpu.sm_count
                             : cta.cluster == 3 ? gpu.sm_count * 117 / 132
                                                : gpu.sm_count * 120 / 132;
  o.resident = reach * o.ctas_per_sm / cta.cluster * cta.cluster;
  o.waves = ceil_div(o.ctas, std::max<std::int64_t>(o.resident, 1));
  return o;
}

double estimate_us(const Instance& instance, const Problem& problem, const GpuFacts& gpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool tile = instance.family == Family::tile;
  const Encoding encoding = tile ? instance.tile().encoding : instance.stream().encoding;
  const int cluster = tile ? instance.tile().cluster : instance.stream().cluster;
  if (encoding != problem.encoding) return infinity;
  if (tile && !problem.tile_kernels_allowed) return infinity;
  if (ceil_div(problem.k, format::tile_k) < cluster) return infinity;
  const Occupancy o = occupancy(instance, problem, gpu);
  if (o.ctas_per_sm < 1) return infinity;
  return tile ? estimate_tile_us(instance.tile(), problem, gpu, o)
              : estimate_stream_us(instance.stream(), problem, gpu, o);
}

}  // namespace slimgemm::plan
