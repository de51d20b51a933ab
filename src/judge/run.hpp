// SPDX-License-Identifier: Apache-2.0
// One run of the judge: every case checked against FP64 references, the scored ones timed side by
// side with the baselines. docs/judging.md states the rules.
#pragma once

#include "judge/cases.hpp"
#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/inputs.hpp"
#include "judge/statistics.hpp"
#include "judge/verdict.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// Fewest pairs that carry a 95 % interval.
inline constexpr int pairs_for_interval = 6;

struct RunOptions {
  Problem problem = fixed_problem();
  std::uint64_t seed = 1;
  int threads = 0;  ///< for making inputs; 0: all hardware threads
  /// Timed pairs of a scored shape; with several baselines a pair is one replay of every side. 0:
  /// as many as case_budget_s allows, at least pairs_for_interval where that takes no more than
  /// three times the budget, at most pairs_max.
  int repeats = 0;
  int pairs_max = 25;
  double case_budget_s = 2;
  int warmup_replays = 0;  ///< untimed replays of all sides before the pairs; checked like all
  int ceiling_repeats = 3;
  int empty_repeats = 101;  ///< of 21 the median differed by 0.4 us from run to run
  /// Replays that are enqueued before the host waits; 1: it waits after each. All sides' replays
  /// count. A batch that has begun is finished, also over case_budget_s.
  int replays_queued = 1;
  /// What the outputs of a batch may take on the device; shapes with a larger output queue less.
  std::size_t queued_bytes_max = std::size_t{1} << 30;
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

/// One baseline on one shape.
struct BaselineResult {
  SideResult side;
  std::optional<Interval> speedup;  ///< baseline / ours, median of the pairs
};

struct CaseResult {
  Shape shape;
  double floor_us = 0;               ///< on an H200, whatever device this is
  std::optional<double> ceiling_us;  ///< streaming read of weight_bytes, x and out
  std::int64_t weight_bytes = 0;     ///< as the contender says
  std::string kernel;                ///< as the contender says
  int replays_queued = 1;            ///< at most as many as RunOptions::replays_queued
  SideResult contender;
  std::vector<std::optional<BaselineResult>> baselines;  ///< as in the run; absent: not run

  /// What baseline number `index` did; null if it did not run on this shape.
  [[nodiscard]] const BaselineResult* against(std::size_t index) const;
};

/// A baseline's sum over the five layers of a load.
struct LoadBaseline {
  double us = 0;
  double speedup = 0;
};

/// Sums over the five layers of a load; only complete loads are listed.
struct LoadResult {
  std::string name;
  std::int64_t m = 0;
  double ours_us = 0;
  double floor_us = 0;
  double ceiling_us = 0;
  std::vector<std::optional<LoadBaseline>> baselines;  ///< as in the run; absent: shapes missing

  [[nodiscard]] const LoadBaseline* against(std::size_t index) const;
};

/// Contender or baseline as such.
struct Participant {
  std::string name;
  std::optional<double> prepare_s;  ///< of a shape file's run: the sum over its layers
  std::vector<Failure> failures;    ///< of prepare
};

struct RunResult {
  std::string shape_file;  ///< empty: the fixed problem
  LayerTable layers;
  Participant contender;
  std::vector<Participant> baselines;  ///< the first is the one of the score
  std::string weights;                 ///< their origin
  double empty_us = 0;
  int replays_queued = 1;
  double elapsed_s = 0;
  std::vector<CaseResult> cases;
  std::vector<LoadResult> loads;
  /// Geometric mean of the six load speedups over the first baseline; absent unless every load is
  /// complete and nothing failed.
  std::optional<double> score;
  std::vector<Failure> run_failures;  ///< the device could not be used after an earlier failure

  /// Every broken rule of the contender; of baseline number `index`; of any baseline.
  [[nodiscard]] std::vector<Failure> contender_failures() const;
  [[nodiscard]] std::vector<Failure> baseline_failures(std::size_t index) const;
  [[nodiscard]] std::vector<Failure> baseline_failures() const;
};

/// Runs, with no baseline, one or several. What contender or baselines do wrong is in the result;
/// an exception means that the judge itself could not go on.
RunResult run_judge(Executor& executor, Contender& contender,
                    const std::vector<Contender*>& baselines, const Weights& weights,
                    const RunOptions& options);

/// Who takes part in a run.
struct Contestants {
  std::unique_ptr<Contender> contender;
  std::vector<std::unique_ptr<Contender>> baselines;
};
using MakeContestants = std::function<Contestants(const Problem& problem)>;

/// Runs layer by layer, so that memory holds the weights of one layer at a time: makes them, makes
/// contestants for this layer alone (Layer 0 of a table of one), judges the layer's cases, frees
/// all. The limit on prepare() holds for each layer.
RunResult run_layer_by_layer(Executor& executor, const MakeContestants& make,
                             const RunOptions& options);

/// Load sums and the score, from the cases' medians; a shape file's run has neither. Pure.
void summarise(RunResult& result);

}  // namespace slimgemm::judge
