// SPDX-License-Identifier: Apache-2.0
// Constants: docs/tuning.md, section The cost model.
#include "plan/cost_model.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace slimgemm::plan {
namespace {

constexpr std::int64_t max_grid_y = 65535;                 // and z
constexpr std::int64_t max_tiles = std::int64_t{1} << 30;  // persistent kernels count in int

// Fitted to measurements of every instance (docs/tuning.md).
namespace fit {
constexpr double hbm_bytes_us = 4.514e6;  // streaming read
constexpr double l2_bytes_us = 24.73e6;   // what all SMs take in, weights and x
// Stream kernels.
constexpr double load_latency_us = 0.909;
constexpr double useful_bytes_in_flight = 632e3;
constexpr double sm_bytes_us = 102.7e3;
constexpr double sm_units_us = 7917;  // k tile times row tile times token tile times term
constexpr double step_us = 0.1966;    // of a warp, and for each of its units and row tiles
constexpr double step_unit_us = 0.0196;
constexpr double step_row_tile_us = 0.0346;
constexpr double step_any_x_us = 0.5;  // for each token tile that is copied element by element
constexpr double start_us = 1.464;
constexpr double warp_sum_us = 0.0261;  // for each warp of an SM, and for each unit that it adds
constexpr double unit_sum_us = 0.0148;
constexpr double sums_power = 1.093;
constexpr double cluster_us = 0.386;
constexpr double wave_us = 0.131;
constexpr double short_wave_us = 0.708;  // by the steps that a warp takes in a wave
constexpr double cluster_wave_us = 0.777;
constexpr double token_block_us = 0.37;
constexpr double sharpness = 3.54;  // of two limits that are close to each other
// Stream kernels by rows.
constexpr double rows_start_us = 1.88;
constexpr double rows_token_tile_us = 0.22;
constexpr double rows_step_us = 0.145;  // of a warp, and for each of its token tiles and tokens
constexpr double rows_step_token_tile_us = 0.012;
constexpr double rows_step_token_us = 0.0012;
// Tile kernels.
constexpr double tile_sm_bytes_us = 108.5e3;
constexpr double tile_clock_mhz = 1587;
constexpr double tile_step_us = 0.1161;           // least time of a k tile
constexpr double tile_shared_bytes_us = 215.6e3;  // 128 bytes a clock
// Row blocks over what one row block after the other would take:
constexpr double two_row_blocks = 0.9862;
constexpr double two_of_256_tokens = 0.9704;
constexpr double three_row_blocks = 0.9632;
constexpr double tile_cluster_us = 0.5071;
constexpr double tile_k_groups_us = 0.5357;
constexpr double tile_start_us = 2.114;
constexpr double tile_wave_us = 2.409;
constexpr double persistent_wave_us = 0.9105;
constexpr double shared_x = 0.985;  // of the tensor cores' time, for what starts later
constexpr double shared_x_start_us = 1.505;
constexpr double tile_sharpness = 7.398;
constexpr double out_bytes_us = 2.881e6;
// Tile kernels for FP32 weights.
constexpr double terms_step_us = 0.17;  // of a k tile, and for each token
constexpr double terms_token_us = 3.3e-3;
constexpr double terms_start_us = 2.6;
constexpr double terms_l2_bytes_us = 7.5e6;  // what the SMs take in from the L2 cache
}  // namespace fit

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// What both families have in common, per CTA.
struct CtaShape {
  int rows;  // those of a cluster: of all CTAs that share x
  int tokens;
  int cluster;
  std::int64_t smem_bytes;
  int threads;
  int most_per_sm;  // registers permitting
};

CtaShape cta_shape(const Instance& instance, const Problem& problem) {
  if (instance.family == Family::stream) {
    const StreamConfig& c = instance.stream();
    const int x_rows = static_cast<int>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
    // Kernels for few tokens need fewer registers than min_ctas allows them.
    const int most = c.token_tiles < 4 ? 2 * c.min_ctas : c.min_ctas;
    const std::int64_t smem = stream_smem_bytes(c, x_rows, ceil_div(problem.k, format::tile_k));
    return {c.row_tiles * format::tile_rows,
            cta_tokens(c),
            c.cluster,
            smem,
            cta_threads(c),
            c.by_rows ? 1 : most};
  }
  const TileConfig& c = instance.tile();
  return {c.row_blocks * c.x_sharers * 64,
          c.tokens,
          c.cluster * c.x_sharers,
          tile_layout(c).total,
          cta_threads(c),
          1};
}

/// CTAs that the busiest SM works through.
double ctas_on_busiest_sm(const Occupancy& o, const GpuFacts& gpu) {
  const std::int64_t last_wave = o.ctas - (o.waves - 1) * o.resident;
  return static_cast<double>((o.waves - 1) * o.ctas_per_sm + ceil_div(last_wave, gpu.sm_count));
}

/// Two limits that are close to each other are worse than either alone.
double both(double a, double b, double sharpness) {
  return std::pow(std::pow(a, sharpness) + std::pow(b, sharpness), 1 / sharpness);
}

double weight_read_us(const Problem& problem) {
  const std::int64_t tiles =
      ceil_div(problem.rows, format::tile_rows) * ceil_div(problem.k, format::tile_k);
  return static_cast<double>(tiles) * tile_bytes(problem.encoding) / fit::hbm_bytes_us;
}

double estimate_stream_us(const StreamConfig& c, const Problem& problem, const GpuFacts& gpu,
                          const Occupancy& o) {
  const double tile = tile_bytes(c.encoding);
  const double terms = c.encoding == Encoding::raw32 ? 3 : 1;
  const std::int64_t k_tiles = ceil_div(ceil_div(problem.k, format::tile_k), c.cluster);
  const auto cta_k_tiles = static_cast<double>(k_tiles);
  const double cta_weights = c.row_tiles * cta_k_tiles * tile;
  const auto x_rows = static_cast<double>(std::min<std::int64_t>(problem.m, cta_tokens(c)));
  const double cta_x = x_rows * cta_k_tiles * format::tile_k * 2;

  // The busiest SM: what its loads in flight bring, what its wire takes in, its tensor cores, and
  // the steps that a warp takes one after the other. And L2, for all SMs.
  const double busiest = ctas_on_busiest_sm(o, gpu);
  const auto together =
      static_cast<double>(std::min(ceil_div(o.ctas, gpu.sm_count), o.ctas_per_sm));
  const double in_flight =
      std::min(together * c.k_warps * c.stages * c.row_tiles * tile, fit::useful_bytes_in_flight);
  const double loads_us = busiest * cta_weights * fit::load_latency_us / in_flight;
  const double ingress_us = busiest * (cta_weights + cta_x) / fit::sm_bytes_us;
  const double math_us = busiest * terms * units(c) * cta_k_tiles / fit::sm_units_us;
  const double any_x_us = c.x_access == XAccess::any ? fit::step_any_x_us * c.token_tiles : 0;
  const double step_us = fit::step_us + fit::step_unit_us * units(c) * terms +
                         fit::step_row_tile_us * c.row_tiles + any_x_us;
  const std::int64_t steps = ceil_div(k_tiles, c.k_warps);
  const double steps_us = busiest / together * static_cast<double>(steps) * step_us;
  const double l2_us = static_cast<double>(o.ctas) * (cta_weights + cta_x) / fit::l2_bytes_us;
  const double sm_us = std::max({loads_us, ingress_us, math_us, steps_us, l2_us});

  const double sums_us =
      together * c.k_warps * fit::warp_sum_us +
      std::pow(together * c.k_warps * units(c), fit::sums_power) * fit::unit_sum_us;
  const double wave_us = fit::wave_us + fit::short_wave_us / static_cast<double>(steps) +
                         (c.cluster > 1 ? fit::cluster_wave_us : 0);
  return both(sm_us, weight_read_us(problem), fit::sharpness) + fit::start_us + sums_us +
         (c.cluster > 1 ? fit::cluster_us : 0) + wave_us * static_cast<double>(o.waves - 1) +
         fit::token_block_us * static_cast<double>(o.token_blocks - 1);
}

/// A kernel by rows: its grid goes through all row tiles.
double estimate_rows_us(const StreamConfig& c, const Problem& problem, const Occupancy& o) {
  const std::int64_t k_tiles = ceil_div(problem.k, format::tile_k);
  const std::int64_t row_tiles = ceil_div(problem.rows, format::tile_rows);
  const auto sm_tiles = static_cast<double>(ceil_div(row_tiles, o.ctas) * k_tiles);
  const double ingress_us = sm_tiles * tile_bytes(c.encoding) / fit::sm_bytes_us;
  const auto steps = static_cast<double>(ceil_div(row_tiles, o.ctas * c.k_warps) * k_tiles);
  const auto m = static_cast<double>(problem.m);
  const double steps_us =
      steps * (fit::rows_step_us + fit::rows_step_token_tile_us * c.token_tiles +
               fit::rows_step_token_us * m);
  const double x_us = m * static_cast<double>(k_tiles) * format::tile_k * 2 / fit::sm_bytes_us;
  return both(std::max(ingress_us, steps_us), weight_read_us(problem), fit::sharpness) + x_us +
         fit::rows_start_us + fit::rows_token_tile_us * c.token_tiles;
}

double estimate_tile_us(const TileConfig& c, const Problem& problem, const GpuFacts& gpu,
                        const Occupancy& o) {
  const auto cta_k_tiles =
      static_cast<double>(ceil_div(ceil_div(problem.k, format::tile_k), c.cluster));
  const auto x_rows = static_cast<double>(tile_x_rows(problem.m, o.token_blocks));
  const double stage_bytes =
      c.row_blocks * 4 * tile_bytes(c.encoding) + x_rows * format::tile_k * 2;
  // A k tile: the tensor cores take 2 clocks a token and row block, the wire its bytes.
  const double others = c.row_blocks == 3   ? fit::three_row_blocks
                        : c.row_blocks == 1 ? 1.0
                        : c.tokens == 256   ? fit::two_of_256_tokens
                                            : fit::two_row_blocks;
  const bool shares_x = c.x_sharers > 1;
  const double math_us = c.row_blocks * c.tokens * 2.0 / fit::tile_clock_mhz * others *
                         (shares_x ? fit::shared_x : 1.0);
  // Shared memory: what comes in, weights to registers, and x to the tensor cores for each row
  // block.
  const double shared_bytes = stage_bytes + c.row_blocks * 4.0 * tile_bytes(c.encoding) +
                              c.row_blocks * c.tokens * format::tile_k * 2.0;
  const double stage_us = std::max({math_us, stage_bytes / fit::tile_sm_bytes_us,
                                    shared_bytes / fit::tile_shared_bytes_us, fit::tile_step_us});
  const double loop_us = ctas_on_busiest_sm(o, gpu) * cta_k_tiles * stage_us;
  // A persistent kernel stores while it multiplies, but for its last tiles.
  const bool persistent = is_persistent(c);
  const auto waves = static_cast<double>(o.waves);
  const double out_us = static_cast<double>(problem.m * problem.rows) * 2 / fit::out_bytes_us /
                        (persistent ? waves : 1.0);
  const double exchange_us = c.cluster > 1    ? fit::tile_cluster_us * c.cluster
                             : c.k_groups > 1 ? fit::tile_k_groups_us
                                              : 0.1;
  return both(loop_us, weight_read_us(problem), fit::tile_sharpness) + fit::tile_start_us +
         (shares_x ? fit::shared_x_start_us : 0.0) + out_us + exchange_us +
         (persistent ? fit::persistent_wave_us : fit::tile_wave_us) * (waves - 1);
}

/// FP32 weights: a k tile's three products, or what the SMs take in together.
double estimate_terms_us(const TileConfig& c, const Problem& problem, const GpuFacts& gpu,
                         const Occupancy& o) {
  const auto cta_k_tiles =
      static_cast<double>(ceil_div(ceil_div(problem.k, format::tile_k), c.cluster));
  const auto x_rows = static_cast<double>(tile_x_rows(problem.m, o.token_blocks));
  const double stage_bytes = 4 * tile_bytes(c.encoding) + x_rows * format::tile_k * 2;
  const double loop_us = ctas_on_busiest_sm(o, gpu) * cta_k_tiles *
                         (fit::terms_step_us + fit::terms_token_us * c.tokens);
  const double l2_us =
      static_cast<double>(o.ctas) * cta_k_tiles * stage_bytes / fit::terms_l2_bytes_us;
  return both(std::max(loop_us, l2_us), weight_read_us(problem), fit::tile_sharpness) +
         fit::terms_start_us + fit::tile_wave_us * static_cast<double>(o.waves - 1);
}

/// SMs that clusters of a size can use: a cluster lies in one GPC (measured with one CTA an SM; of
/// 7, which no instance has, as of 6).
std::int64_t reachable_sms(int cluster, std::int64_t sm_count) {
  constexpr std::int64_t of_132[] = {132, 132, 117, 120, 110, 102, 102, 120};
  return sm_count * of_132[cluster - 1] / 132;
}

}  // namespace

Occupancy occupancy(const Instance& instance, const Problem& problem, const GpuFacts& gpu) {
  const CtaShape cta = cta_shape(instance, problem);
  Occupancy o{};
  o.groups = ceil_div(problem.rows, cta.rows);
  o.token_blocks = ceil_div(problem.m, cta.tokens);
  const bool by_rows = instance.family == Family::stream && instance.stream().by_rows;
  if (by_rows) o.groups = std::min<std::int64_t>(o.groups, gpu.sm_count);
  o.ctas = o.groups * cta.cluster * o.token_blocks;
  o.ctas_per_sm = std::min<std::int64_t>(
      {cta.most_per_sm, gpu.smem_per_sm_bytes / (cta.smem_bytes + 1024), 2048 / cta.threads});
  o.resident = reachable_sms(cta.cluster, gpu.sm_count) * o.ctas_per_sm / cta.cluster * cta.cluster;
  o.waves = ceil_div(o.ctas, std::max<std::int64_t>(o.resident, 1));
  return o;
}

double estimate_us(const Instance& instance, const Problem& problem, const GpuFacts& gpu) {
  const double infinity = std::numeric_limits<double>::infinity();
  const bool tile = instance.family == Family::tile;
  const Encoding encoding = tile ? instance.tile().encoding : instance.stream().encoding;
  if (encoding != problem.encoding) return infinity;
  const bool any_x = !tile && instance.stream().x_access == XAccess::any;
  if (!problem.x_aligned && !any_x) return infinity;
  if (tile && problem.k % format::tile_k != 0) return infinity;
  const int least = tile ? least_k_tiles(instance.tile()) : instance.stream().cluster;
  if (ceil_div(problem.k, format::tile_k) < least) return infinity;
  const Occupancy o = occupancy(instance, problem, gpu);
  // A stream kernel's token blocks and a tile kernel's groups of rows lie along y.
  if (o.ctas_per_sm < 1 || (tile ? o.groups : o.token_blocks) > max_grid_y) return infinity;
  if (tile && o.token_blocks > max_grid_y * token_block_group) return infinity;
  if (tile && o.ctas > max_tiles) return infinity;
  if (!tile && instance.stream().by_rows) {
    return o.token_blocks == 1 ? estimate_rows_us(instance.stream(), problem, o) : infinity;
  }
  if (!tile) return estimate_stream_us(instance.stream(), problem, gpu, o);
  return encoding == Encoding::raw32 ? estimate_terms_us(instance.tile(), problem, gpu, o)
                                     : estimate_tile_us(instance.tile(), problem, gpu, o);
}

}  // namespace slimgemm::plan
