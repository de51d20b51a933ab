// SPDX-License-Identifier: Apache-2.0
#include "report/column_chart.hpp"

#include "report/bar_chart.hpp"
#include "report/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace slimgemm::report {
namespace {

constexpr double chart_width = 420;
constexpr double height = 210;
constexpr double left = 60;
constexpr double right = 8;
constexpr double top = 18;
constexpr double bottom = 40;
constexpr double base_y = height - bottom;

class Drawing {
 public:
  explicit Drawing(const ColumnChart& chart) : chart_(chart) {
    for (const Column& column : chart.columns) {
      limit_ = std::max({limit_, column.value, column.dot.value_or(0)});
    }
    for (const Level& level : chart.levels) limit_ = std::max(limit_, level.value);
    if (chart.logarithmic) {
      limit_ = 1;
    } else {
      limit_ = limit_ > 0 ? limit_ * 1.05 : 1;
    }
    const auto count = static_cast<double>(std::max<std::size_t>(chart.columns.size(), 1));
    step_ = (chart_width - left - right) / count;
  }

  std::string svg() {
    add("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", chart_width, height,
        escape_html(chart_.title));
    shade();
    grid();
    for (std::size_t i = 0; i < chart_.columns.size(); ++i) column(i);
    for (const Level& level : chart_.levels) {
      const double y = y_at(level.value);
      add("<line class=\"mark\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left,
          chart_width - right, y, y);
      text("value", chart_width - right - 2, y - 4, "end", level.label);
    }
    text("label", (left + chart_width - right) / 2, height - 6, "middle", chart_.x_title);
    return svg_ + "</svg>\n";
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }

  void text(const char* css, double x, double y, const char* anchor, const std::string& content) {
    if (content.empty()) return;
    add("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", css, x, y,
        anchor, escape_html(content));
  }

  [[nodiscard]] double x_at(std::size_t column) const {
    return left + step_ * static_cast<double>(column);
  }

  [[nodiscard]] double y_at(double value) const {
    double part = value / limit_;
    if (chart_.logarithmic) {
      part = value > chart_.low ? 1 - std::log10(value) / std::log10(chart_.low) : 0;
    }
    return base_y - part * (base_y - top);
  }

  void shade() {
    if (!chart_.shade || chart_.shade->end <= chart_.shade->first) return;
    const double x = x_at(chart_.shade->first);
    const double end = x_at(chart_.shade->end);
    add("<rect class=\"shade\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>", x,
        top, end - x, base_y - top);
    text("label", (x + end) / 2, top - 5, "middle", chart_.shade->label);
  }

  void grid_line(double value, const std::string& label) {
    const double y = y_at(value);
    add("<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left,
        chart_width - right, y, y);
    text("label", left - 5, y + 4, "end", label);
  }

  void grid() {
    if (chart_.logarithmic) {
      const int decades = static_cast<int>(std::lround(-std::log10(chart_.low)));
      for (int decade = 0; decade <= decades; decade += decades > 6 ? 2 : 1) {
        grid_line(std::pow(10.0, -decade), fmt::format("{:g} %", std::pow(10.0, 2 - decade)));
      }
    } else {
      const double step = tick_step(limit_);
      for (int i = 0; step * i <= limit_; ++i) grid_line(step * i, fmt::format("{:g}", step * i));
    }
    svg_ += '\n';
  }

  void column(std::size_t index) {
    const Column& column = chart_.columns[index];
    const double gap = step_ > 4 ? 1 : 0;
    if (column.value > 0) {
      const double y = std::min(y_at(column.value), base_y - 0.5);  // never invisible
      add("<rect class=\"s{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
          "<title>{}</title></rect>",
          column.series, x_at(index) + gap / 2, y, step_ - gap, base_y - y,
          escape_html(column.tip));
    }
    if (column.dot) {
      add("<circle class=\"dot\" cx=\"{:.2f}\" cy=\"{:.1f}\" r=\"{:.1f}\"/>",
          x_at(index) + step_ / 2, y_at(*column.dot), std::clamp(step_ / 3, 1.2, 3.0));
    }
    text("label", x_at(index) + step_ / 2, base_y + 14, "middle", column.label);
    svg_ += '\n';
  }

  const ColumnChart& chart_;
  double limit_ = 0;
  double step_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw(const ColumnChart& chart) { return Drawing(chart).svg(); }

}  // namespace slimgemm::report
