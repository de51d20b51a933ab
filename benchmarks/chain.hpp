// SPDX-License-Identifier: Apache-2.0
// A chain of layers in one recorded call: what launches that overlap gain, which a layer that is
// timed by itself cannot show.
#pragma once

#include "judge/cases.hpp"
#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/host_facts.hpp"
#include "judge/statistics.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::bench {

/// One layer of a pass for m tokens.
struct Step {
  judge::Shape shape;
  /// The step whose out is this one's x, or fixed_x: an x that no step writes. The last step feeds
  /// the first one from pass to pass; in the first pass that one's x is fixed, too.
  int x_from = fixed_x;
  std::string kernel{};  ///< as the plan names it

  static constexpr int fixed_x = -1;
};

/// The layers in their order, each fed by the one before it where that gives BF16 of the width
/// that it takes. The last layer comes before the first one.
std::vector<Step> connect(const judge::LayerTable& layers, std::int64_t m);

struct ChainOptions {
  judge::LayerTable layers;  ///< of a pass
  std::vector<std::int64_t> tokens;
  int passes = 8;    ///< through all layers; each has copies of the weights of its own
  int replays = 51;  ///< of every chain, in turn
  /// Called with what is being done and the share of the work that is done.
  std::function<void(const std::string& stage, double done)> progress{};
};

/// The chains of one token count. Times are microseconds of a whole chain, the empty replay
/// subtracted.
struct ChainResult {
  std::int64_t m = 0;
  std::vector<Step> steps;
  double empty_us = 0;
  judge::Spread plain;
  judge::Spread programmatic;  ///< LinearOptions::programmatic_launch
  judge::Interval gain;        ///< plain over programmatic, pair by pair
  std::optional<judge::Spread> baseline;
  std::optional<judge::Interval> baseline_ratio;  ///< plain over baseline, pair by pair
  std::vector<judge::Spread> single;              ///< each step by itself, not programmatic
  std::vector<std::string> failures;              ///< results that are not what they should be

  [[nodiscard]] double single_sum_us() const;
};

struct ChainReport {
  int passes = 0;
  std::vector<std::string> layers;
  std::int64_t weight_bytes = 0;  ///< packed, of all passes
  std::string baseline;           ///< name; empty: none
  std::vector<ChainResult> results;

  [[nodiscard]] bool passed() const;
};

/// Makes a baseline for a problem whose layers are those of all passes, one after the other.
using MakeBaseline = std::function<std::unique_ptr<judge::Contender>(const judge::Problem&)>;

/// Times SlimGEMM's chains without and with programmatic launches, the baseline's (if there is
/// one), and every layer by itself as the judge does, all in turn, with a cold cache before each.
/// The results of both chains must be the same bits in every replay.
ChainReport run_chains(judge::Executor& executor, const ChainOptions& options,
                       const MakeBaseline& make_baseline);

struct ChainFacts {
  std::string command_line;
  std::string date;  ///< UTC, ISO 8601
  judge::Facts device;
};

std::string chain_text(const ChainReport& report);
/// Errors: unsupported in a build without JSON.
std::string chain_json(const ChainReport& report, const ChainFacts& facts);

}  // namespace slimgemm::bench
