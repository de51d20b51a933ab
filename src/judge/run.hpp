// SPDX-License-Identifier: Apache-2.0
// One run of the judge: every case checked against FP64 references, the scored ones timed in pairs
// with the baseline. docs/judging.md states the rules.
#pragma once

#include "judge/cases.hpp"
#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/inputs.hpp"
#include "judge/statistics.hpp"
#include "judge/verdict.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// Fewest pairs that carry a 95 % interval.
inline constexpr int pairs_for_interval = 6;

struct RunOptions {
  LayerTable layers = judge::layers();
  std::vector<Case> cases = all_cases();
  std::uint64_t seed = 1;
  int threads = 0;  ///< for making inputs; 0: all hardware threads
  /// Timed pairs of a scored shape. 0: as many as case_budget_s allows, at least
  /// pairs_for_interval where that takes no more than three times the budget, at most pairs_max.
  int repeats = 0;
  int pairs_max = 25;
  double case_budget_s = 2;
  int warmup_replays = 0;  ///< untimed replays of both sides before the pairs; checked like all
  int ceiling_repeats = 3;
  int empty_repeats = 21;
  double prepare_limit_s = 300;
  /// Called with what is being done and the share of the work that is done.
  std::function<void(const std::string& stage, double done)> progress;
};

/// What one side, contender or baseline, did with one shape.
struct SideResult {
  ErrorFigures errors;     ///< worst over all checked replays
  int inputs_checked = 0;  ///< different x whose result was compared with its reference
  int replays_checked = 0;
  bool bit_identical = true;  ///< replays on the same x gave the same bits
  std::vector<Failure> failures;
  std::optional<Spread> time;  ///< microseconds of a replay, the empty replay subtracted
};

struct CaseResult {
  Shape shape;
  double floor_us = 0;               ///< on an H200, whatever device this is
  std::optional<double> ceiling_us;  ///< streaming read of weight_bytes, x and out
  std::int64_t weight_bytes = 0;     ///< as the contender says
  std::string kernel;                ///< as the contender says
  SideResult contender;
  std::optional<SideResult> baseline;
  std::optional<Interval> speedup;  ///< baseline / ours, median of the pairs
};

/// Sums over the five layers of a load; only complete loads are listed.
struct LoadResult {
  std::string name;
  std::int64_t m = 0;
  double ours_us = 0;
  double floor_us = 0;
  double ceiling_us = 0;
  std::optional<double> baseline_us;
  std::optional<double> speedup;
};

struct RunResult {
  std::string contender;
  std::string baseline;  ///< empty: none
  std::string weights;   ///< their origin
  double prepare_s = 0;
  std::optional<double> baseline_prepare_s;
  double empty_us = 0;
  double elapsed_s = 0;
  std::vector<CaseResult> cases;
  std::vector<LoadResult> loads;
  /// Geometric mean of the six load speedups; absent unless every load is complete and nothing
  /// failed.
  std::optional<double> score;
  std::vector<Failure> prepare_failures;  ///< of the contender
  std::vector<Failure> baseline_prepare_failures;
  std::vector<Failure> run_failures;  ///< the device could not be used after an earlier failure

  /// Every broken rule of the contender; of the baseline.
  [[nodiscard]] std::vector<Failure> contender_failures() const;
  [[nodiscard]] std::vector<Failure> baseline_failures() const;
};

/// Runs. `baseline` may be null. What contender or baseline do wrong is in the result; an exception
/// means that the judge itself could not go on.
RunResult run_judge(Executor& executor, Contender& contender, Contender* baseline,
                    const Weights& weights, const RunOptions& options);

/// Load sums and the score, from the cases' medians. Pure.
void summarise(RunResult& result);

}  // namespace slimgemm::judge
