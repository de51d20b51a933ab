// SPDX-License-Identifier: Apache-2.0
// One case of a run.
#pragma once

#include "judge/run.hpp"

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

namespace slimgemm::judge {

/// What the cases of a run share.
struct Session {
  Executor& executor;
  Contender& contender;
  std::vector<Contender*> baselines;  // null: it could not be prepared
  const RunOptions& options;
  std::vector<std::unique_ptr<Buffer>> weights;  // by layer
  double empty_us = 0;
  std::map<std::size_t, double> ceilings;  // streaming-read times by bytes

  double ceiling_us(std::size_t bytes);
};

/// The order of `sides` sides in round `round`: rotated by one a round and, from three sides on,
/// reversed every second time around. So on each of three or five inputs taken in turn, any two
/// sides go first equally often.
std::vector<std::size_t> turn_order(std::size_t sides, int round);

/// How many replays of a shape whose guarded output takes `out_bytes` are enqueued at a time.
int replays_queued(const RunOptions& options, std::size_t out_bytes);

CaseResult run_case(Session& session, const Case& c);

}  // namespace slimgemm::judge
