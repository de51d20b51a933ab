// SPDX-License-Identifier: Apache-2.0
#include "judge/report.hpp"
#include "judge/report_cells.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace slimgemm::judge {
namespace {

// A table whose columns are as wide as their widest cell; the first column is left-aligned.
class Table {
 public:
  explicit Table(std::vector<std::string> head) { add(std::move(head)); }

  void add(std::vector<std::string> row) {
    widths_.resize(std::max(widths_.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], row[i].size());
    rows_.push_back(std::move(row));
  }

  [[nodiscard]] std::string to_string() const {
    std::string text;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += i == 0 ? fmt::format("{:<{}}", row[i], widths_[i])
                       : fmt::format("  {:>{}}", row[i], widths_[i]);
      }
      text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<std::size_t> widths_;
};

std::string percent_or_dash(double share) {
  return std::isfinite(share) ? fmt::format("{:.3g}%", share * 100) : "-";
}

std::string interval(const std::optional<Interval>& ratio) {
  if (!ratio) return "";
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio->value, ratio->low, ratio->high);
}

std::string share_of_ceiling(const CaseResult& c) {
  const auto share = ceiling_share(c);
  return share ? fmt::format("{:.0f}%", *share * 100) : "";
}

std::string case_verdict(const CaseResult& c) {
  if (!c.contender.failures.empty()) return "FAILED";
  const bool sound = std::all_of(c.baselines.begin(), c.baselines.end(), [](const auto& baseline) {
    return !baseline || baseline->side.failures.empty();
  });
  return sound ? "ok" : "BASELINE";
}

std::string shapes_table(const RunResult& result, bool is_cuda) {
  std::vector<std::string> head{"layer"};
  if (shows_sizes(result)) head.insert(head.end(), {"n", "k"});
  head.insert(head.end(), {"m", "ours us"});
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    head.insert(head.end(), {time_head(result, i), ratio_head(result, i) + " [95 %]"});
  }
  if (is_cuda) head.emplace_back("floor us");
  for (const char* title : {"ceiling us", "of ceiling", "L2 error", "worst row", "probe", ""}) {
    head.emplace_back(title);
  }
  Table table(head);
  for (const CaseResult& c : result.cases) {
    std::vector<std::string> row{c.shape.name};
    if (shows_sizes(result)) {
      row.insert(row.end(), {std::to_string(c.shape.n), std::to_string(c.shape.k)});
    }
    row.insert(row.end(), {std::to_string(c.shape.m), us_text(c.contender.time)});
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      row.push_back(us_text(baseline_median(c, i)));
      row.push_back(interval(speedup_of(c, i)));
    }
    if (is_cuda) row.push_back(c.shape.scored ? us_text(c.floor_us) : "");
    row.push_back(us_text(c.ceiling_us));
    row.push_back(share_of_ceiling(c));
    row.push_back(percent_or_dash(c.contender.errors.l2));
    row.push_back(percent_or_dash(c.contender.errors.row));
    row.push_back(percent_or_dash(c.contender.errors.probe));
    row.push_back(case_verdict(c));
    table.add(row);
  }
  return table.to_string();
}

std::string loads_table(const RunResult& result, bool is_cuda) {
  std::vector<std::string> head{"load", "m", "ours us"};
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    const std::string ratio = result.baselines.size() == 1 ? "speedup" : ratio_head(result, i);
    head.insert(head.end(), {time_head(result, i), ratio});
  }
  if (is_cuda) head.emplace_back("floor us");
  head.emplace_back("ceiling us");
  Table table(head);
  for (const LoadResult& load : result.loads) {
    std::vector<std::string> row{load.name, std::to_string(load.m), us_text(load.ours_us)};
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const LoadBaseline* against = load.against(i);
      row.push_back(against == nullptr ? "" : us_text(against->us));
      row.push_back(against == nullptr ? "" : fmt::format("{:.3f}", against->speedup));
    }
    if (is_cuda) row.push_back(us_text(load.floor_us));
    row.push_back(us_text(load.ceiling_us));
    table.add(row);
  }
  return table.to_string();
}

std::string fact(const Facts& facts, const std::string& key) {
  for (const auto& [name, value] : facts) {
    if (name == key) return value;
  }
  return "unknown";
}

// Things that break no rule but that a reader should know.
std::string notes(const RunResult& result) {
  std::string text;
  int few_pairs = 0;
  for (const CaseResult& c : result.cases) {
    const auto speedup = speedup_of(c, 0);
    few_pairs += speedup && speedup->coverage < interval_coverage;
    if (!c.contender.bit_identical) {
      text += fmt::format("note: {} m={}: replays on the same x differ in some bits\n",
                          c.shape.name, c.shape.m);
    }
    if (c.contender.time && c.replays_queued < result.replays_queued) {
      text += fmt::format(
          "note: {} m={}: replays queued: {}; the outputs of more would take too much memory\n",
          c.shape.name, c.shape.m, c.replays_queued);
    }
  }
  if (few_pairs > 0) {
    text += fmt::format(
        "note: {} shapes ran fewer than {} pairs; their intervals are the whole "
        "range and cover less than 95 %. --repeats asks for more\n",
        few_pairs, pairs_for_interval);
  }
  return text;
}

std::string failures(const RunResult& result) {
  std::string text;
  for (const Failure& failure : result.contender_failures()) {
    text += fmt::format("FAILED: {}: {}\n", result.contender.name, failure.to_string());
  }
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    for (const Failure& failure : result.baseline_failures(i)) {
      text += fmt::format("INVALID RUN: baseline {}: {}\n", result.baselines[i].name,
                          failure.to_string());
    }
  }
  return text;
}

std::string conclusion(const RunResult& result) {
  std::string text;
  if (result.score) {
    text += fmt::format("score: {:.3f} (geometric mean of the six load speedups over {})\n",
                        *result.score, result.baselines.front().name);
  } else {
    text += fmt::format("no score: {}\n", no_score_reason(result));
  }
  const auto timed =
      std::count_if(result.cases.begin(), result.cases.end(),
                    [](const CaseResult& c) { return c.contender.time.has_value(); });
  text += fmt::format("verdict: {} (shapes checked: {}, timed: {}; {:.0f} s)\n",
                      name(verdict(result)), result.cases.size(), timed, result.elapsed_s);
  return text;
}

}  // namespace

std::string text_report(const RunResult& result, const ReportFacts& facts) {
  std::string text = fmt::format(
      "slimgemm judge {} ({})\ndevice: {}\ncontender: {}, prepared in {:.2f} s; baseline: {}\n"
      "weights: {}; inputs from seed {}; empty replay {:.2f} us, subtracted; replays queued: "
      "{}\n\n",
      facts.version, facts.commit, fact(facts.device, "device"), result.contender.name,
      result.contender.prepare_s.value_or(0), baseline_names(result, "none"), result.weights,
      facts.seed, result.empty_us, result.replays_queued);
  if (!result.cases.empty()) text += shapes_table(result, facts.is_cuda) + '\n';
  if (!result.loads.empty()) text += loads_table(result, facts.is_cuda) + '\n';
  if (shows_sizes(result)) text += shapes_summary_text(result, "", "  ") + '\n';
  return text + notes(result) + failures(result) + conclusion(result);
}

}  // namespace slimgemm::judge
