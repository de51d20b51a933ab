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

Occupancy occupancy(const Instance& instance, const Problem& problem, const GpuFacts& gpu);

}  // namespace slimgemm::plan
