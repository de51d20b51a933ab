// SPDX-License-Identifier: Apache-2.0
// What the cells of all tables have in common: text, markdown and HTML.
#pragma once

#include "judge/run.hpp"
#include "judge/shapes_summary.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace slimgemm::judge {

inline std::string us_text(double value) { return fmt::format("{:.2f}", value); }
inline std::string us_text(const std::optional<double>& value) {
  return value ? us_text(*value) : std::string();
}
inline std::string us_text(const std::optional<Spread>& time) {
  return time ? us_text(time->median) : std::string();
}

inline std::optional<double> median_of(const SideResult& side) {
  return side.time ? std::optional(side.time->median) : std::nullopt;
}
inline std::optional<double> baseline_median(const CaseResult& c, std::size_t index) {
  const BaselineResult* against = c.against(index);
  return against == nullptr ? std::nullopt : median_of(against->side);
}
inline std::optional<Interval> speedup_of(const CaseResult& c, std::size_t index) {
  const BaselineResult* against = c.against(index);
  return against == nullptr ? std::nullopt : against->speedup;
}

/// Heads of a baseline's two columns, its time and the ratio to ours. One baseline needs no name.
inline std::string time_head(const RunResult& result, std::size_t index) {
  return result.baselines.size() == 1 ? "baseline us" : result.baselines[index].name + " us";
}
inline std::string ratio_head(const RunResult& result, std::size_t index) {
  return result.baselines.size() == 1 ? "ratio" : result.baselines[index].name + " / ours";
}

/// "sglang and best-blas"; `none` without baselines.
inline std::string baseline_names(const RunResult& result, const std::string& none) {
  std::string names;
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    if (i > 0) names += i + 1 == result.baselines.size() ? " and " : ", ";
    names += result.baselines[i].name;
  }
  return names.empty() ? none : names;
}

inline std::string ceiling_share_text(const CaseResult& c) {
  const auto share = ceiling_share(c);
  return share ? fmt::format("{:.0f} %", *share * 100) : std::string();
}

/// Whether the tables show N and K: a reader knows those of the fixed problem.
inline bool shows_sizes(const RunResult& result) { return !result.shape_file.empty(); }

}  // namespace slimgemm::judge
