// SPDX-License-Identifier: Apache-2.0
// One page without outside resources: charts drawn here, tables, and the JSON for programs.
#include "judge/report.hpp"
#include "judge/report_cells.hpp"
#include "judge/svg_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace slimgemm::judge {
namespace {

constexpr const char* style = R"css(
:root { color-scheme: light dark; --paper: #fbfbf9; --card: #ffffff; --ink: #1c2126;
  --soft: #5c666f; --rule: #dfe3e6; --s0: #0f7b6c; --s1: #8d99a5; --s2: #d9a441; --s3: #c9d1d8;
  --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181c; --card: #1b2126; --ink: #e6eaed;
  --soft: #9aa6b0; --rule: #323b43; --s0: #3fb8a3; --s1: #6f7d8a; --s2: #d9a441; --s3: #45515c;
  --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.25rem; max-width: 76rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: .25rem 0 .75rem; max-width: 48rem; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.score { font-size: 3rem; line-height: 1.1; font-weight: 650; color: var(--s0); margin: .5rem 0 0; }
.bad { color: var(--bad); font-weight: 600; }
.grid-of-charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 6px;
  padding: .75rem; margin: 0; max-width: 36rem; }
svg { display: block; width: 100%; margin-top: .5rem; height: auto;
  font: 11px system-ui, sans-serif; }
svg .label { fill: var(--soft); }
svg .value { fill: var(--ink); paint-order: stroke; stroke: var(--card); stroke-width: 3px; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .mark { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; }
.s0 { fill: var(--s0); background: var(--s0); } .s1 { fill: var(--s1); background: var(--s1); }
.s2 { fill: var(--s2); background: var(--s2); } .s3 { fill: var(--s3); background: var(--s3); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .25rem 0 .75rem;
  list-style: none; font-size: .9rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px;
  margin-right: .4rem; vertical-align: -1px; }
.scroll { overflow-x: auto; margin-top: 1.25rem; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--rule);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.facts td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
.facts td:first-child { color: var(--soft); white-space: nowrap; vertical-align: top; }
)css";

class HtmlTable {
 public:
  explicit HtmlTable(const std::vector<std::string>& head)
      : html_(R"(<div class="scroll"><table>)") {
    html_ += "<thead><tr>";
    for (const auto& cell : head) html_ += "<th>" + escape_html(cell) + "</th>";
    html_ += "</tr></thead>\n<tbody>\n";
  }
  void add(const std::vector<std::string>& row) {
    html_ += "<tr>";
    for (const auto& cell : row) html_ += "<td>" + cell + "</td>";
    html_ += "</tr>\n";
  }
  std::string finish() { return std::move(html_) + "</tbody></table></div>\n"; }

 private:
  std::string html_;
};

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

// A "<" can only stand inside a JSON string, where it may be written as an escape: nothing in the
// data can then end the script element.
std::string embedded_json(const RunResult& result, const ReportFacts& facts) {
  std::string json;
  for (const char c : json_report(result, facts)) {
    if (c == '<') {
      json += "\\u003c";
    } else {
      json += c;
    }
  }
  return "<script type=\"application/json\" id=\"result\">\n" + json + "</script>\n";
}

}  // namespace

std::string html_report(const RunResult& result, const ReportFacts& facts) {
  const std::string charts = result.shape_file.empty()
                                 ? speedup_section(result) + times_section(result, facts.is_cuda)
                                 : html_shapes_section(result);
  return fmt::format(
             "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
             "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
             "<title>SlimGEMM judge: {}</title>\n<style>{}</style>\n</head>\n<body>\n",
             escape_html(result.contender.name), style) +
         head_section(result, facts) + charts + times_table(result, facts.is_cuda) +
         correctness_section(result) + facts_section(result, facts) + embedded_json(result, facts) +
         "</body>\n</html>\n";
}

}  // namespace slimgemm::judge
