// SPDX-License-Identifier: Apache-2.0
// The tuned plans: which instance was the fastest for a shape when measured. The table is a text
// file, tuning/plans.csv, that the build puts into the library as it is; docs/tuning.md defines it.
#pragma once

#include "plan/kernel_plan.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::plan {

/// One line of the table.
struct TunedPlan {
  int sm_count = 0;  ///< of the GPU that it was measured on
  Encoding encoding = Encoding::split12;
  std::int64_t rows = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  double measured_us = 0;  ///< median of the replays, the empty replay subtracted
  Instance instance;
  std::string source;  ///< the comment lines that speak for it, without "# ": device, date, commit

  friend bool operator==(const TunedPlan&, const TunedPlan&) = default;
};

/// The order of the lines: by SM count, encoding (split12, raw16, raw32), rows, k, m. No two lines
/// agree in all five.
bool is_before(const TunedPlan& a, const TunedPlan& b);

/// The line that names the columns.
inline constexpr std::string_view tuning_columns = "sms,encoding,n,k,m,measured_us,instance";

/// A table's text, read to the end whatever is wrong with it.
struct TuningText {
  std::vector<TunedPlan> entries;  ///< of the good lines
  /// One message a bad line: the table's name, the line's number, what is wrong, what to do.
  std::vector<std::string> errors;
  /// Likewise for lines that are good but for an instance that kernel_table.hpp does not have (any
  /// more).
  std::vector<std::string> unknown_instances;
};

/// `name` is what the messages call the table, its path say.
TuningText read_tuning_table(std::string_view text, const std::string& name);

class TuningTable {
 public:
  TuningTable() = default;
  /// Errors: invalid_argument if the entries are not in order.
  explicit TuningTable(std::vector<TunedPlan> entries);

  /// The entry that speaks for a problem, or null. An entry for t tokens speaks for those from the
  /// shape's next lower entry (without it) to t; the lowest for those above t / 2. A binary search.
  [[nodiscard]] const TunedPlan* find(const Problem& problem, const GpuFacts& gpu) const;

  [[nodiscard]] std::span<const TunedPlan> entries() const { return entries_; }

 private:
  std::vector<TunedPlan> entries_;
};

/// The text of tuning/plans.csv when the library was built.
std::string_view shipped_tuning_text();

/// The table in that text, read at the first call. A text with an error gives an empty table, so
/// that no plan rests on half of it; shipped_tuning_errors says why, and a unit test fails.
const TuningTable& shipped_tuning_table();
const std::vector<std::string>& shipped_tuning_errors();

}  // namespace slimgemm::plan
