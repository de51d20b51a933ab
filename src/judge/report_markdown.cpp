// SPDX-License-Identifier: Apache-2.0
#include "judge/report.hpp"
#include "judge/report_cells.hpp"

#include <fmt/format.h>

namespace slimgemm::judge {
namespace {

class MarkdownTable {
 public:
  explicit MarkdownTable(const std::vector<std::string>& head) {
    add(head);
    text_ += "|---|";
    for (std::size_t i = 1; i < head.size(); ++i) text_ += "---:|";
    text_ += '\n';
  }
  void add(const std::vector<std::string>& row) {
    text_ += '|';
    for (const std::string& cell : row) text_ += ' ' + cell + " |";
    text_ += '\n';
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string shapes_table(const RunResult& result) {
  std::vector<std::string> head{"layer"};
  if (shows_sizes(result)) head.insert(head.end(), {"N", "K"});
  head.insert(head.end(), {"m", "ours us"});
  for (std::size_t i = 0; i < result.baselines.size(); ++i) head.push_back(time_head(result, i));
  head.insert(head.end(), {"ceiling us", "of ceiling"});
  for (std::size_t i = 0; i < result.baselines.size(); ++i) head.push_back(ratio_head(result, i));
  MarkdownTable table(head);
  for (const CaseResult& c : result.cases) {
    if (!c.contender.time) continue;
    std::vector<std::string> row{c.shape.name};
    if (shows_sizes(result)) {
      row.insert(row.end(), {std::to_string(c.shape.n), std::to_string(c.shape.k)});
    }
    row.insert(row.end(), {std::to_string(c.shape.m), us_text(c.contender.time)});
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      row.push_back(us_text(baseline_median(c, i)));
    }
    row.insert(row.end(), {us_text(c.ceiling_us), ceiling_share_text(c)});
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const auto speedup = speedup_of(c, i);
      row.push_back(speedup ? fmt::format("{:.3f}", speedup->value) : "");
    }
    table.add(row);
  }
  return table.text();
}

std::string loads_table(const RunResult& result) {
  std::vector<std::string> head{"load", "m", "ours us"};
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    head.insert(head.end(), {time_head(result, i), ratio_head(result, i)});
  }
  MarkdownTable table(head);
  for (const LoadResult& load : result.loads) {
    std::vector<std::string> row{load.name, std::to_string(load.m), us_text(load.ours_us)};
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const LoadBaseline* against = load.against(i);
      row.push_back(against == nullptr ? "" : us_text(against->us));
      row.push_back(against == nullptr ? "" : fmt::format("{:.3f}", against->speedup));
    }
    table.add(row);
  }
  return table.text();
}

}  // namespace

std::string markdown_report(const RunResult& result, const ReportFacts& facts) {
  std::string device = "unknown";
  for (const auto& [key, value] : facts.device) {
    if (key == "device") device = value;
  }
  std::string text = fmt::format(
      "`{}`, version {} ({}), {}, {}. Verdict: {}; {} shapes checked. Times are medians of "
      "replays, all sides measured side by side in one run (replays queued: {}); the ceiling is a "
      "plain read of the bytes that ours must read.\n\n",
      facts.command_line, facts.version, facts.commit, device, facts.date, name(verdict(result)),
      result.cases.size(), result.replays_queued);
  text += shapes_table(result);
  if (!result.loads.empty()) text += '\n' + loads_table(result);
  const std::string reason = no_score_reason(result);
  if (shows_sizes(result)) {
    text += '\n' + shapes_summary_text(result, "- ", "  - ");
  } else if (result.score) {
    text += fmt::format("\nScore over {}: {:.3f}.\n", result.baselines.front().name, *result.score);
  } else {
    text += fmt::format("\nNo score: {}.\n", reason);
  }
  for (const Failure& failure : result.contender_failures()) {
    text += fmt::format("- failed: {}\n", failure.to_string());
  }
  for (const Failure& failure : result.baseline_failures()) {
    text += fmt::format("- baseline: {}\n", failure.to_string());
  }
  return text;
}

}  // namespace slimgemm::judge
