// SPDX-License-Identifier: Apache-2.0
// The charts of a run of a shape file: speedups and shares of the ceiling, one pair a token count.
#include "judge/report.hpp"
#include "judge/report_cells.hpp"
#include "report/bar_chart.hpp"
#include "report/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <sstream>

namespace slimgemm::judge {
namespace {

using report::BarChart;
using report::BarGroup;
using report::draw;
using report::escape_html;

constexpr double label_unit_width = 6.2;  // of a character, in the drawing's units
constexpr double label_width_max = 180;

BarChart chart_for(const RunResult& result, const std::string& title) {
  std::size_t longest = 0;
  for (const LayerInfo& layer : result.layers) longest = std::max(longest, layer.name.size());
  BarChart chart;
  chart.title = title;
  chart.mark = 1.0;
  chart.value_decimals = 2;
  chart.label_width =
      std::min(static_cast<double>(longest) * label_unit_width + 12, label_width_max);
  return chart;
}

std::string figure(const std::string& title, const std::string& caption, const BarChart& chart) {
  return fmt::format("<figure class=\"card\"><h3>{}</h3><figcaption>{}</figcaption>{}</figure>\n",
                     title, caption, draw(chart));
}

std::string speedups(const RunResult& result, std::int64_t m) {
  BarChart chart = chart_for(result, fmt::format("Speedups at m = {}", m));
  for (const CaseResult& c : result.cases) {
    if (c.shape.m != m) continue;
    BarGroup group{c.shape.name, {}};
    bool any = false;
    for (std::size_t i = 0; i < result.baselines.size(); ++i) {
      const auto speedup = speedup_of(c, i);
      any = any || speedup;
      group.values.push_back(speedup ? std::optional(speedup->value) : std::nullopt);
    }
    if (any) chart.groups.push_back(std::move(group));
  }
  if (chart.groups.empty()) return {};
  return figure(fmt::format("Speedups, m = {}", m), "Baseline time over ours. Dashed: parity.",
                chart);
}

std::string shares(const RunResult& result, std::int64_t m) {
  BarChart chart = chart_for(result, fmt::format("Shares of the ceiling at m = {}", m));
  for (const CaseResult& c : result.cases) {
    if (c.shape.m != m || !ceiling_share(c)) continue;
    chart.groups.push_back({c.shape.name, {ceiling_share(c)}});
  }
  if (chart.groups.empty()) return {};
  return figure(fmt::format("Share of the ceiling, m = {}", m),
                "Time of a plain read of the bytes that ours must read, over ours. Dashed: as fast "
                "as that read.",
                chart);
}

std::string legend(const RunResult& result) {
  std::string html;
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    html += fmt::format("<li><i class=\"s{}\"></i>over {}</li>", i,
                        escape_html(result.baselines[i].name));
  }
  return html.empty() ? html : "<ul class=\"legend\">" + html + "</ul>\n";
}

std::string layer_list(const RunResult& result) {
  std::string rows;
  for (const LayerInfo& layer : result.layers) {
    const auto bytes = static_cast<double>(layer.n * layer.k * size_bytes(layer.dtype));
    rows += fmt::format("<tr><td>{}</td><td>{} x {} {}, {:.1f} MB</td><td>{}</td></tr>\n",
                        escape_html(layer.name), layer.n, layer.k, slimgemm::name(layer.dtype),
                        bytes / 1e6, escape_html(layer.role));
  }
  return "<h2>Layers</h2>\n<div class=\"scroll\"><table class=\"facts\"><tbody>\n" + rows +
         "</tbody></table></div>\n";
}

}  // namespace

std::string html_shapes_section(const RunResult& result) {
  std::set<std::int64_t> tokens;
  for (const CaseResult& c : result.cases) tokens.insert(c.shape.m);
  std::string charts;
  for (const std::int64_t m : tokens) charts += speedups(result, m) + shares(result, m);
  if (charts.empty()) return layer_list(result);
  std::istringstream summary(shapes_summary_text(result, "", ""));
  std::string html = "<h2>Speedups and shares of the ceiling</h2>\n";
  for (std::string line; std::getline(summary, line);) html += "<p>" + escape_html(line) + "</p>\n";
  return html + legend(result) + "<div class=\"grid-of-charts\">\n" + charts + "</div>\n" +
         layer_list(result) + "<h2>Times</h2>\n";
}

}  // namespace slimgemm::judge
