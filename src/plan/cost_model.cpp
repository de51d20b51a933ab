// SPDX-License-Identifier: Apache-2.0
// The constants are measurements on an H200, docs/decisions/gpu-kernels.md.
#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimgemm::plan {
namespace {

constexpr std::int64_t max_grid_y = 65535;  // token blocks of a launch

constexpr double hbm_bytes_us = 4.4e6;        // streaming read
constexpr double sm_ingress_bytes_us = 95e3;  // one SM, 57 bytes a clock
constexpr double load_latency_us = 1.3;       // of HBM, loaded
constexpr double sm_mma_flops_us = 1.7e6;     // mma.sync with decoding and ldmatrix around it
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

/// Two limits that are close to each other are worse than either alone.
double both(double a, double b) { return std::cbrt(a * a * a + b * b * b); }

double weight_read_us(const Problem& problem, Encoding encoding) {
  const std::int64_t tiles =
      ceil_div(problem.rows, format::tile_rows) * ceil_div(problem.k, format::tile_k);
  return static_cast<double>(tiles) * tile_bytes(encoding) / hbm_bytes_us;
}

double estimate_stream_us(const StreamConfig& c, const Problem& problem, const GpuFacts& gpu,
                          const Occupancy& o) {
  const double tile = tile_bytes(c.encoding);
  const auto cta_k_tiles =
      static_cast<double>(ceil_div(ceil_div(problem.k, format::tile_k), c.cluster));
  const double cta_weights = cta_row_tiles(c) * cta_k_tiles * tile;
  const double x_rows = static_cast<double>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  const double cta_x = x_rows * cta_k_tiles * 128;

  // The busiest SM: what its loads in flight bring, what its wire takes in, and its tensor cores.
  const double busiest = ctas_on_busiest_sm(o, gpu);
  const auto together =
      static_cast<double>(std::min(ceil_div(o.ctas, gpu.sm_count), o.ctas_per_sm));
  const double in_flight = together * consumer_warps(c) * c.stages * c.row_tiles * tile;
  const double loads_us = busiest * cta_weights * load_latency_us / in_flight;
  const double ingress_us = busiest * (cta_weights + cta_x) / sm_ingress_bytes_us;
  const double terms = c.encoding == Encoding::raw32 ? 3 : 1;
  const double math_us = busiest * terms * 2.0 * cta_row_tiles(c) * format::tile_rows *
                         cta_tokens(c) * cta_k_tiles * format::tile_k / sm_mma_flops_us;
  const double sm_us = std::max({loads_us, ingress_us, math_us});
  // Start, reduction over the warps, cluster exchange, further waves and passes over the weights.
  const double fixed_us = 1.2 + 0.05 * consumer_warps(c) * together + 0.2 * c.token_tiles +
                          (c.cluster > 1 ? 0.7 : 0.0) +
                          (c.cluster > 1 ? 2.5 : 0.5) * static_cast<double>(o.waves - 1) +
                          0.6 * static_cast<double>(o.token_blocks - 1);
  return both(sm_us, weight_read_us(problem, c.encoding)) + fixed_us;
}

double estimate_tile_us(const TileConfig& c, const Problem& problem, const GpuFacts& gpu,
                        const Occupancy& o) {
  const auto cta_k_tiles =
      static_cast<double>(ceil_div(ceil_div(problem.k, format::tile_k), c.cluster));
  const double x_rows = static_cast<double>(std::min<std::int64_t>(problem.m, c.tokens));
  const double stage_bytes = c.row_blocks * 4 * tile_bytes(c.encoding) + x_rows * 128;
  // A k tile: the tensor cores take 2 clocks a token and row block, the wire its bytes; two row
  // blocks get in each other's way.
  const double math_us =
      c.row_blocks * c.tokens * 2.0 / tile_clock_mhz * (c.row_blocks > 1 ? 1.3 : 1.0);
  const double stage_us = std::max(math_us, stage_bytes / sm_ingress_bytes_us);
  const double loop_us = ctas_on_busiest_sm(o, gpu) * cta_k_tiles * stage_us;
  const double out_us = static_cast<double>(problem.m * problem.rows) * 2 / 5e6;
  const double exchange_us = c.cluster > 1 ? 0.55 * c.cluster : partners(c) > 1 ? 0.4 : 0.1;
  return both(loop_us, weight_read_us(problem, c.encoding)) + 2.1 + out_us + exchange_us +
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
  // A cluster lies in one GPC: with one CTA an SM, clusters of 3 reach 117 of 132 SMs, clusters of
  // 8 120 (measured).
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
  if (!tile && instance.stream().x_access == XAccess::aligned && !problem.x_aligned) {
    return infinity;
  }
  if (ceil_div(problem.k, format::tile_k) < cluster) return infinity;
  const Occupancy o = occupancy(instance, problem, gpu);
  if (o.ctas_per_sm < 1 || o.token_blocks > max_grid_y) return infinity;
  return tile ? estimate_tile_us(instance.tile(), problem, gpu, o)
              : estimate_stream_us(instance.stream(), problem, gpu, o);
}

}  // namespace slimgemm::plan
