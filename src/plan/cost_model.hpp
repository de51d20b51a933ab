// SPDX-License-Identifier: Apache-2.0
// How an instance lies on the machine, and how long it should take there.
#pragma once

#include "plan/kernel_plan.hpp"

#include <cstdint>

namespace slimgemm::plan {

struct Occupancy {
  std::int64_t groups;  ///< CTAs (or clusters) along the output features
  std::int64_t token_blocks;
  std::int64_t ctas;
  std::int64_t ctas_per_sm;
  std::int64_t resident;  ///< CTAs that run at the same time
  std::int64_t waves;
};

/// Tokens that a CTA of a tile kernel takes: equal parts of m, in eights (copies of rows beyond m
/// are slower than those of rows).
constexpr std::int64_t tile_x_rows(std::int64_t m, std::int64_t token_blocks) {
  const std::int64_t part = (m + token_blocks - 1) / token_blocks;
  return token_blocks == 1 ? part : (part + 7) / 8 * 8;
}

Occupancy occupancy(const Instance& instance, const Problem& problem, const GpuFacts& gpu);

}  // namespace slimgemm::plan
