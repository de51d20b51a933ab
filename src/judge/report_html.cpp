// SPDX-License-Identifier: Apache-2.0
// One page without outside resources: charts drawn here, tables, and the JSON for programs.
#include "judge/report.hpp"
#include "judge/report_cells.hpp"
#include "report/bar_chart.hpp"
#include "report/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace slimgemm::judge {
namespace {

using report::BarChart;
using report::BarGroup;
using report::draw;
using report::escape_html;
using report::HtmlTable;

std::string percent(double share) {
  return std::isfinite(share) ? fmt::format("{:.3g} %", share * 100) : "-";
}

std::string head_section(const RunResult& result, const ReportFacts& facts) {
  std::string html = "<h1>SlimGEMM judge</h1>\n";
  std::string device;
  for (const auto& [key, value] : facts.device) {
    if (key == "device") device = value;
  }
  html += fmt::format("<p class=\"soft\">{} against {} on {}, {}</p>\n",
                      escape_html(result.contender.name),
                      escape_html(baseline_names(result, "no baseline")), escape_html(device),
                      escape_html(facts.date));
  if (result.score) {
    html += fmt::format(
        "<p class=\"score\">{:.3f}</p><p class=\"soft\">score: geometric mean of "
        "the six load speedups</p>\n",
        *result.score);
  } else {
    html += fmt::format("<p>No score: {}.</p>\n", escape_html(no_score_reason(result)));
  }
  const Verdict outcome = verdict(result);
  html += fmt::format("<p{}>Verdict: {}. {} shapes checked.</p>\n",
                      outcome == Verdict::passed ? "" : " class=\"bad\"", name(outcome),
                      result.cases.size());
  for (const Failure& failure : result.contender_failures()) {
    html += "<p class=\"bad\">" + escape_html(failure.to_string()) + "</p>\n";
  }
  for (const Failure& failure : result.baseline_failures()) {
    html += "<p class=\"bad\">baseline: " + escape_html(failure.to_string()) + "</p>\n";
  }
  return html;
}

std::string speedup_section(const RunResult& result) {
  BarChart chart;
  chart.title = "Speedup of every load";
  chart.mark = 1.0;
  chart.value_decimals = 3;
  for (const LoadResult& load : result.loads) {
    BarGroup group{load.name, {}};
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const LoadBaseline* against = load.against(i);
      group.values.push_back(against ? std::optional(against->speedup) : std::nullopt);
    }
    if (load.against(0) != nullptr) chart.groups.push_back(std::move(group));
  }
  if (chart.groups.empty()) return {};
  std::string over;
  for (const Participant& baseline : result.baselines) {
    if (result.baselines.size() == 1) break;
    over += fmt::format("<li><i class=\"s{}\"></i>over {}</li>",
                        &baseline - result.baselines.data(), escape_html(baseline.name));
  }
  if (!over.empty()) over = "<ul class=\"legend\">" + over + "</ul>\n";
  return "<h2>Speedups</h2>\n<p class=\"soft\">Baseline time divided by ours, summed over the five "
         "layers of each load. The dashed line is parity.</p>\n" +
         over + "<figure class=\"card\">" + draw(chart) + "</figure>\n";
}

std::string times_legend(const RunResult& result, bool is_cuda) {
  std::vector<std::string> entries{"ours"};
  for (const Participant& baseline : result.baselines) {
    entries.push_back(result.baselines.size() == 1 ? "baseline" : escape_html(baseline.name));
  }
  if (entries.size() == 1) entries.emplace_back("baseline");
  entries.emplace_back("ceiling: plain read of the bytes that ours must read, measured");
  if (is_cuda) entries.emplace_back("floor: dense bytes and FLOPs at data-sheet speed");
  std::string html = "<ul class=\"legend\">";
  for (std::size_t i = 0; i < entries.size(); ++i) {
    html += fmt::format("<li><i class=\"s{}\"></i>{}</li>", i, entries[i]);
  }
  return html + "</ul>\n";
}

// One chart a load; a run of single layers still shows the shapes that it timed.
std::string times_section(const RunResult& result, bool is_cuda) {
  std::string charts;
  for (const Load& load : loads()) {
    BarChart chart;
    chart.title = fmt::format("Times of {}", load.name);
    for (const CaseResult& c : result.cases) {
      if (!c.shape.scored || c.shape.m != load.m || !c.contender.time) continue;
      BarGroup group{c.shape.name, {median_of(c.contender)}};
      for (std::size_t i = 0; i < std::max<std::size_t>(result.baselines.size(), 1); ++i) {
        group.values.push_back(baseline_median(c, i));
      }
      group.values.push_back(c.ceiling_us);
      if (is_cuda) group.values.emplace_back(c.floor_us);
      chart.groups.push_back(std::move(group));
    }
    if (chart.groups.empty()) continue;
    charts += fmt::format(
        "<figure class=\"card\"><h3>{}</h3><figcaption>m = {}: {}. Microseconds."
        "</figcaption>{}</figure>\n",
        load.name, load.m, load.models, draw(chart));
  }
  if (charts.empty()) return {};
  return "<h2>Times</h2>\n" + times_legend(result, is_cuda) + "<div class=\"grid-of-charts\">\n" +
         charts + "</div>\n";
}

std::string times_table(const RunResult& result, bool is_cuda) {
  std::vector<std::string> head{"layer"};
  if (shows_sizes(result)) head.insert(head.end(), {"n", "k"});
  head.insert(head.end(), {"m", "ours us", "quartiles"});
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    head.insert(head.end(), {time_head(result, i), ratio_head(result, i), "95 % interval"});
  }
  head.insert(head.end(), {"ceiling us", "of ceiling"});
  if (is_cuda) head.emplace_back("floor us");
  HtmlTable table(head);
  bool any = false;
  for (const CaseResult& c : result.cases) {
    if (!c.contender.time) continue;
    any = true;
    const Spread& time = *c.contender.time;
    std::vector<std::string> row{c.shape.name};
    if (shows_sizes(result)) {
      row.insert(row.end(), {std::to_string(c.shape.n), std::to_string(c.shape.k)});
    }
    row.insert(row.end(), {std::to_string(c.shape.m), us_text(time.median),
                           fmt::format("{:.2f} to {:.2f}", time.quartile_low, time.quartile_high)});
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const auto speedup = speedup_of(c, i);
      row.push_back(us_text(baseline_median(c, i)));
      row.push_back(speedup ? fmt::format("{:.3f}", speedup->value) : "");
      row.push_back(speedup ? fmt::format("{:.3f} to {:.3f}", speedup->low, speedup->high) : "");
    }
    row.insert(row.end(), {us_text(c.ceiling_us), ceiling_share_text(c)});
    if (is_cuda) row.push_back(us_text(c.floor_us));
    table.add(row);
  }
  return any ? table.finish() : std::string();
}

std::string correctness_section(const RunResult& result) {
  HtmlTable table({"layer", "m", "L2 error", "limit", "worst row", "worst probe", "inputs",
                   "replays", "same bits", "verdict"});
  for (const CaseResult& c : result.cases) {
    const SideResult& side = c.contender;
    table.add({c.shape.name, std::to_string(c.shape.m), percent(side.errors.l2),
               percent(l2_limit(c.shape.dtype)), percent(side.errors.row),
               percent(side.errors.probe), std::to_string(side.inputs_checked),
               std::to_string(side.replays_checked), side.bit_identical ? "yes" : "no",
               side.failures.empty() ? "ok" : "<span class=\"bad\">failed</span>"});
  }
  return "<h2>Correctness</h2>\n<p class=\"soft\">Every replay is checked against an FP64 "
         "reference: "
         "relative error of the whole output, of its worst row (limit five times that), and of the "
         "worst element of the probe rows (limit 0.1 %), whose results are exactly scaled weight "
         "columns.</p>\n" +
         table.finish();
}

std::string facts_section(const RunResult& result, const ReportFacts& facts) {
  std::string rows;
  const auto add = [&](const std::string& key, const std::string& value) {
    rows += "<tr><td>" + escape_html(key) + "</td><td>" + escape_html(value) + "</td></tr>\n";
  };
  add("command", facts.command_line);
  add("version", fmt::format("{} ({})", facts.version, facts.commit));
  add("date", facts.date);
  if (!result.shape_file.empty()) add("shapes", result.shape_file);
  add("weights", result.weights);
  add("seed", std::to_string(facts.seed));
  add("prepare", fmt::format("{:.2f} s", result.contender.prepare_s.value_or(0)));
  add("empty replay", fmt::format("{:.2f} us, subtracted", result.empty_us));
  add("replays queued", std::to_string(result.replays_queued));
  for (const auto& [key, value] : facts.device) add(key, value);
  return "<h2>Run</h2>\n<table class=\"facts\"><tbody>" + rows + "</tbody></table>\n";
}

}  // namespace

std::string html_report(const RunResult& result, const ReportFacts& facts) {
  const std::string drawings = result.shape_file.empty()
                                   ? speedup_section(result) + times_section(result, facts.is_cuda)
                                   : html_shapes_section(result);
  return report::html_page("SlimGEMM judge: " + result.contender.name,
                           head_section(result, facts) + drawings +
                               times_table(result, facts.is_cuda) + correctness_section(result) +
                               facts_section(result, facts) +
                               report::embedded_json(json_report(result, facts)));
}

}  // namespace slimgemm::judge
