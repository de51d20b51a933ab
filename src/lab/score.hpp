// SPDX-License-Identifier: Apache-2.0
// From times to the score, the distance to the floors, and what both mean for a serving step.
#pragma once

#include "lab/times.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::lab {

/// How often each of a load's five shapes runs in one serving step.
inline constexpr int calls_a_step = 62;

struct Floors {
  double dense_us = 0;   ///< the judge's floor: weights as they come, 16 bits (router 32)
  double packed_us = 0;  ///< the floor with BF16 weights at ScoreOptions::weight_bits

  Floors& operator+=(const Floors& other) {
    dense_us += other.dense_us;
    packed_us += other.packed_us;
    return *this;
  }
};

struct ShapeScore {
  judge::Layer layer{};
  TimePair time;
  Floors floors;
};

struct LoadScore {
  judge::Load load;
  TimePair time;       ///< of the whole load, or of the shapes given
  Floors floors;       ///< of the same shapes as `time`
  bool whole = false;  ///< false: some of the five shapes are missing, so it is not in the score
  std::vector<ShapeScore> shapes;

  /// Milliseconds that a serving step spends in these layers.
  [[nodiscard]] double baseline_step_ms() const { return time.baseline_us * calls_a_step / 1e3; }
  [[nodiscard]] double ours_step_ms() const { return time.ours_us * calls_a_step / 1e3; }
};

struct Score {
  std::vector<LoadScore> loads;  ///< those that the table has times for, in the judge's order
  std::optional<double> score;   ///< geometric mean over the whole loads; nothing if there is none
  int whole_loads = 0;           ///< 6 for the judge's score
};

/// Bits a BF16 weight takes for Floors::packed_us; above 0 and at most 64, else
/// Error(invalid_argument). The router's FP32 weights always count 32.
Score compute_score(const TimesTable& table, double weight_bits = 16);

/// `score` for a person to read; with weight_bits other than 16 the packed floors are shown too.
std::string score_text(const Score& score, const TimesTable& table, double weight_bits = 16);

}  // namespace slimgemm::lab
