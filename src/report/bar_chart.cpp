// SPDX-License-Identifier: Apache-2.0
#include "report/bar_chart.hpp"

#include "report/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace slimgemm::report {
namespace {

constexpr double width = 420;
constexpr double value_width = 52;
constexpr double bar_height = 12;
constexpr double bar_gap = 2;
constexpr double group_gap = 12;
constexpr double axis_height = 18;

double largest_value(const BarChart& chart) {
  double largest = chart.mark.value_or(0);
  for (const BarGroup& group : chart.groups) {
    for (const auto& value : group.values) largest = std::max(largest, value.value_or(0));
  }
  return largest > 0 ? largest : 1;
}

double group_height(const BarGroup& group) {
  return static_cast<double>(group.values.size()) * (bar_height + bar_gap) + group_gap;
}

std::string draw_group(const BarChart& chart, const BarGroup& group, double top, double scale) {
  const double bars = group_height(group) - group_gap;
  std::string svg = fmt::format(R"(<text class="label" x="{:.1f}" y="{:.1f}" )"
                                R"(text-anchor="end" dominant-baseline="middle">{}</text>)",
                                chart.label_width - 8, top + bars / 2, escape_html(group.label));
  for (std::size_t i = 0; i < group.values.size(); ++i) {
    if (!group.values[i]) continue;
    const double value = *group.values[i];
    const double y = top + static_cast<double>(i) * (bar_height + bar_gap);
    const double length = std::max(value * scale, 1.0);
    const std::string text = chart.value_decimals < 0
                                 ? short_number(value)
                                 : fmt::format("{:.{}f}", value, chart.value_decimals);
    svg += fmt::format(R"(<rect class="s{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}" )"
                       R"(rx="1.5"/><text class="value" x="{:.1f}" y="{:.1f}" )"
                       R"(dominant-baseline="middle">{}</text>)",
                       i, chart.label_width, y, length, bar_height, chart.label_width + length + 4,
                       y + bar_height / 2 + 0.5, text);
  }
  return svg + '\n';
}

std::string draw_grid(double left, double limit, double scale, double bottom) {
  std::string svg;
  const double step = tick_step(limit);
  for (int i = 0; step * i <= limit * 1.0001; ++i) {
    const double x = left + step * i * scale;
    svg += fmt::format(
        R"(<line class="grid" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1:.1f}"/>)"
        R"(<text class="label" x="{0:.1f}" y="{2:.1f}" text-anchor="middle">{3}</text>)",
        x, bottom, bottom + 13, fmt::format("{:g}", step * i));
  }
  return svg + '\n';
}

}  // namespace

double tick_step(double limit) {
  const double rough = limit / 4;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (rough <= factor * power) return factor * power;
  }
  return 10 * power;
}

std::string short_number(double value) {
  if (!std::isfinite(value)) return "-";
  const double magnitude = std::abs(value);
  const int decimals = magnitude < 10 ? 2 : magnitude < 100 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string draw(const BarChart& chart) {
  const double limit = largest_value(chart);
  const double scale = (width - chart.label_width - value_width) / limit;
  double bottom = 4;
  for (const BarGroup& group : chart.groups) bottom += group_height(group);
  std::string svg = fmt::format(R"(<svg viewBox="0 0 {:.0f} {:.0f}" role="img" aria-label="{}">)",
                                width, bottom + axis_height, escape_html(chart.title));
  svg += draw_grid(chart.label_width, limit, scale, bottom - group_gap / 2);
  if (chart.mark) {
    svg += fmt::format(R"(<line class="mark" x1="{0:.1f}" x2="{0:.1f}" y1="0" y2="{1:.1f}"/>)",
                       chart.label_width + *chart.mark * scale, bottom - group_gap / 2);
  }
  double top = 4;
  for (const BarGroup& group : chart.groups) {
    svg += draw_group(chart, group, top, scale);
    top += group_height(group);
  }
  return svg + "</svg>\n";
}

}  // namespace slimgemm::report
