// SPDX-License-Identifier: Apache-2.0
// The times that a score is made of, and the two files they come from: a CSV table that a person
// edits, and the judge's JSON report.
#pragma once

#include "judge/cases.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace slimgemm::lab {

inline constexpr std::size_t load_count = 6;

/// Microseconds for one call (a shape), or for the five calls of a load.
struct TimePair {
  double baseline_us = 0;
  double ours_us = 0;

  [[nodiscard]] double speedup() const { return baseline_us / ours_us; }
  TimePair& operator+=(const TimePair& other) {
    baseline_us += other.baseline_us;
    ours_us += other.ours_us;
    return *this;
  }
};

/// What is known of one load: its sum, or some or all of its five shapes. A sum is never given
/// together with all five shapes, so that an edited figure always counts.
struct LoadTimes {
  std::optional<TimePair> sum;
  std::array<std::optional<TimePair>, judge::layer_count> shapes;  ///< by Layer

  [[nodiscard]] int shapes_given() const;
  [[nodiscard]] bool empty() const { return !sum && shapes_given() == 0; }
};

struct TimesTable {
  std::string source;                       ///< where it was read, and what it says of itself
  std::array<LoadTimes, load_count> loads;  ///< in the order of judge::loads()
  std::string verdict;                 ///< the judge's: passed, failed, invalid; empty: a table
  std::optional<double> stated_score;  ///< the score that the judge wrote
};

/// The CSV table (labs/README.md). `name` stands before every message. Throws
/// Error(invalid_argument) "NAME:LINE: ..." with the value and what is allowed.
TimesTable parse_times_csv(std::string_view text, const std::string& name);

/// The judge's JSON report (docs/report-schema.md). Throws Error(invalid_argument) naming the
/// field, Error(unsupported) in a build without nlohmann-json.
TimesTable parse_judge_json(std::string_view text, const std::string& name);

/// Whether parse_judge_json works in this build.
bool json_supported();

/// Reads the file as the judge's JSON if its name ends in .json or it begins with '{', else as CSV.
/// Throws Error(io_error) for a file that can't be read or is over 64 MiB.
TimesTable read_times(const std::string& path);

/// A time is above 0 and at most this.
inline constexpr double time_max_us = 1e9;

}  // namespace slimgemm::lab
