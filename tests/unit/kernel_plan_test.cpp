// SPDX-License-Identifier: Apache-2.0
#include "plan/kernel_plan.hpp"
#include "plan/cost_model.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

namespace slimgemm::plan {
namespace {

const GpuFacts h200{};

TEST(KernelPlan, EveryInstanceHasItsOwnName) {
  std::set<std::string> names;
  std::size_t count = 0;
  for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    for (const Instance& instance : instances_of(e)) {
      names.insert(instance_name(instance));
      ++count;
    }
  }
  EXPECT_EQ(names.size(), count);
  EXPECT_EQ(count, stream_count + tile_count);
}

TEST(KernelPlan, ServesEveryShapeInEveryEncoding) {
  for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    for (const std::int64_t n : {1, 16, 255, 2304, 151936}) {
      for (const std::int64_t k : {1, 64, 100, 1024, 8192, 28672}) {
        for (const std::int64_t m : {1, 2, 9, 33, 65, 300, 8192}) {
          const Problem problem{.rows = n, .k = k, .m = m, .encoding = e};
          const KernelPlan plan = plan_by_model(problem, h200);
          EXPECT_GT(plan.grid_x, 0);
          EXPECT_LE(plan.smem_bytes, smem_limit_bytes);
          EXPECT_LE(plan.threads, 1024);
          EXPECT_TRUE(std::isfinite(plan.estimated_us));
        }
      }
    }
  }
}

TEST(KernelPlan, TileKernelsOnlyWhereTheyAreAllowed) {
  Problem problem{.rows = 4096, .k = 8192, .m = 128};
  EXPECT_EQ(plan_by_model(problem, h200).instance.family, Family::tile);
  problem.k = 8190;
  EXPECT_EQ(plan_by_model(problem, h200).instance.family, Family::stream);
  problem.k = 8192;
  problem.x_aligned = false;
  const Instance any = plan_by_model(problem, h200).instance;
  EXPECT_EQ(any.family, Family::stream);
  EXPECT_EQ(any.stream().x_access, XAccess::any);
  problem.encoding = Encoding::raw32;
  EXPECT_EQ(plan_by_model(problem, h200).instance.family, Family::stream);
}

TEST(KernelPlan, FewTokensStream) {
  for (const std::int64_t m : {1, 8, 16}) {
    EXPECT_EQ(plan_by_model({.rows = 8192, .k = 4096, .m = m}, h200).instance.family,
              Family::stream);
  }
}

TEST(KernelPlan, ClustersAndPersistentKernelsNeedEnoughKTiles) {
  for (const Encoding encoding : {Encoding::raw32, Encoding::split12}) {
    for (const Instance& instance : instances_of(encoding)) {
      const bool tile = instance.family == Family::tile;
      const int least = tile ? least_k_tiles(instance.tile()) : instance.stream().cluster;
      Problem problem{.rows = 256, .k = 64 * least, .m = 1, .encoding = encoding};
      EXPECT_TRUE(std::isfinite(estimate_us(instance, problem, h200))) << instance_name(instance);
      if (least == 1) continue;
      problem.k -= 64;
      EXPECT_TRUE(std::isinf(estimate_us(instance, problem, h200))) << instance_name(instance);
      EXPECT_THROW(plan_instance(instance, problem, h200), Error);
    }
  }
}

TEST(KernelPlan, PersistentKernelsLaunchAtMostACtaAnSm) {
  for (const Instance& instance : instances_of(Encoding::split12)) {
    if (instance.family != Family::tile) continue;
    const bool persistent = is_persistent(instance.tile());
    const GpuFacts odd{.sm_count = 131};  // no whole number of pairs
    const KernelPlan few = plan_instance(instance, {.rows = 64, .k = 4096, .m = 1}, odd);
    EXPECT_EQ(launched_ctas(few, odd), few.grid_x) << instance_name(instance);
    const KernelPlan many = plan_instance(instance, {.rows = 16384, .k = 4096, .m = 8192}, odd);
    const std::int64_t tiles = many.grid_x * many.grid_y;
    ASSERT_GT(tiles, odd.sm_count);
    const std::int64_t together = 131 / many.cluster * many.cluster;
    EXPECT_EQ(launched_ctas(many, odd), persistent ? together : tiles) << instance_name(instance);
  }
}

TEST(KernelPlan, RefusesMoreTokensThanAGridTakes) {
  try {
    plan_by_model({.rows = 64, .k = 64, .m = max_dimension, .x_aligned = false}, h200);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find("2147483647"), std::string::npos) << error.what();
  }
}

TEST(KernelPlan, OccupancyCountsWaves) {
  const Instance one_per_sm{Family::tile, 0};  // 64 rows x 32 tokens, no cluster
  ASSERT_EQ(one_per_sm.tile().cluster, 1);
  const Occupancy fits = occupancy(one_per_sm, {.rows = 64 * 132, .k = 64, .m = 32}, h200);
  EXPECT_EQ(fits.ctas, 132);
  EXPECT_EQ(fits.waves, 1);
  const Occupancy over = occupancy(one_per_sm, {.rows = 64 * 133, .k = 64, .m = 32}, h200);
  EXPECT_EQ(over.ctas, 133);
  EXPECT_EQ(over.waves, 2);
}

TEST(KernelPlan, ByRowsTakesWhatFitsIntoSharedMemory) {
  bool seen = false;
  for (const Instance& instance : instances_of(Encoding::split12)) {
    if (instance.family != Family::stream || !instance.stream().by_rows) continue;
    seen = true;
    const std::int64_t m = cta_tokens(instance.stream());
    Problem problem{.rows = 32768, .k = 512, .m = m};
    EXPECT_TRUE(std::isfinite(estimate_us(instance, problem, h200))) << instance_name(instance);
    const KernelPlan plan = plan_instance(instance, problem, h200);
    EXPECT_EQ(plan.grid_x, h200.sm_count) << "the grid goes through all row tiles";
    EXPECT_EQ(plan.smem_bytes, weight_ring_bytes(instance.stream()) + 512 * m * 2);
    problem.m = m + 1;
    EXPECT_TRUE(std::isinf(estimate_us(instance, problem, h200))) << instance_name(instance);
    problem.m = m;
    problem.k = (smem_limit_bytes - weight_ring_bytes(instance.stream())) / (2 * m) / 64 * 64;
    EXPECT_TRUE(std::isfinite(estimate_us(instance, problem, h200))) << instance_name(instance);
    problem.k += 64;
    EXPECT_TRUE(std::isinf(estimate_us(instance, problem, h200))) << instance_name(instance);
  }
  EXPECT_TRUE(seen);
}

TEST(StreamLayout, PartsDoNotOverlap) {
  for (const StreamConfig& c : stream_table) {
    if (c.by_rows) continue;  // nothing but a ring and x
    for (int rows = 1; rows <= cta_tokens(c); ++rows) {
      const StreamLayout layout = stream_layout(c, rows);
      const int rings = c.k_warps * c.stages * (c.row_tiles * tile_bytes(c.encoding) + rows * 128);
      const int partials = c.k_warps * c.row_tiles * c.token_tiles * 512;
      const int corrections = has_exceptions(c) ? 2 * c.row_tiles * c.token_tiles * 512 : 0;
      EXPECT_GE(layout.corrections, rings);
      EXPECT_GE(layout.exchange, layout.corrections + corrections);
      EXPECT_GE(layout.barrier, layout.exchange);
      EXPECT_EQ(layout.barrier % 8, 0);
      if (layout.partials == 0) {
        EXPECT_LE(partials, layout.corrections) << "shared with the rings only";
      } else {
        EXPECT_GE(layout.partials, layout.barrier + 8);
        EXPECT_GE(layout.total, layout.partials + partials);
      }
      EXPECT_LE(layout.total, smem_limit_bytes);
    }
  }
}

TEST(StreamConfig, OwnersHaveAllUnitsOnce) {
  for (const StreamConfig& c : stream_table) {
    EXPECT_GE(owned_units(c) * c.cluster, units(c));
    if (c.cluster > 1) {
      const StreamLayout layout = stream_layout(c, cta_tokens(c));
      EXPECT_GE(layout.barrier - layout.exchange, exchange_sources(c) * owned_units(c) * 512);
    }
  }
}

TEST(TileConfig, RanksOwnAllUnitsOnce) {
  for (const TileConfig& c : tile_table) {
    EXPECT_EQ(owned_units(c) * c.k_groups * 8, c.tokens);
    EXPECT_EQ(first_unit(c, 0), 0);
    EXPECT_EQ(first_unit(c, c.cluster), owned_units(c));
    for (int rank = 0; rank < c.cluster; ++rank) {
      EXPECT_LE(first_unit(c, rank), first_unit(c, rank + 1));
      EXPECT_LE(first_unit(c, rank + 1) - first_unit(c, rank), max_units(c));
    }
  }
}

TEST(TileConfig, StepsOfTheEpilogueCoverAllUnits) {
  for (const TileConfig& c : tile_table) {
    EXPECT_GE(epilogue_steps(c) * step_units(c), max_units(c));
    EXPECT_LT((epilogue_steps(c) - 1) * step_units(c), max_units(c));
    EXPECT_LE(scratch_bytes(c),
              c.k_groups == 2 ? c.x_stages * c.tokens * 128 / warpgroups(c) : w_ring_bytes(c));
    if (c.k_groups == 2) {
      EXPECT_LE(2 + warpgroups(c) * (1 + epilogue_steps(c)), named_barriers);
    }
  }
}

TEST(TileConfig, StartsWithinItsRings) {
  for (const TileConfig& c : tile_table) {
    EXPECT_LE(first_w_stages(c), c.w_stages);
    EXPECT_LE(first_x_stages(c), c.x_stages);
    EXPECT_GE(first_x_stages(c), c.k_groups) << "each k group's first k tile";
  }
}

}  // namespace
}  // namespace slimgemm::plan
