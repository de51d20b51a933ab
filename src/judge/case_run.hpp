// SPDX-License-Identifier: Apache-2.0
// One case of a run.
#pragma once

#include "judge/run.hpp"

#include <array>
#include <map>
#include <memory>

namespace slimgemm::judge {

/// What the cases of a run share.
struct Session {
  Executor& executor;
  Contender& contender;
  Contender* baseline;  // null: none
  const RunOptions& options;
  std::array<std::unique_ptr<Buffer>, layer_count> weights;
  double empty_us = 0;
  std::map<std::size_t, double> ceilings;  // streaming-read times by bytes

  double ceiling_us(std::size_t bytes);
};

CaseResult run_case(Session& session, const Case& c);

}  // namespace slimgemm::judge
