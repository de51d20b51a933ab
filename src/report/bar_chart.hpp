// SPDX-License-Identifier: Apache-2.0
// Bar charts as SVG. Colours come from the page's CSS (html_page.hpp): bars have the classes s0,
// s1,
// ... of their series, everything else the classes label, value, grid and mark.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace slimgemm::report {

/// Three significant digits without an exponent: "8.35", "20.1", "1234".
std::string short_number(double value);

struct BarGroup {
  std::string label;
  std::vector<std::optional<double>> values;  ///< one a series; absent: no bar
};

struct BarChart {
  std::string title;  ///< for screen readers
  std::vector<BarGroup> groups;
  std::optional<double> mark;  ///< a vertical line at this value
  double label_width = 74;     ///< room for the labels of the groups
  int value_decimals = -1;     ///< digits after the point; -1: three significant digits
};

/// Horizontal bars from zero, a group below the other, each with its value at its end. The drawing
/// is 420 units wide and scales with the page.
std::string draw(const BarChart& chart);

/// A round step (1, 2 or 5 times a power of ten) that divides an axis up to `limit`, above 0, into
/// two to five parts.
double tick_step(double limit);

}  // namespace slimgemm::report
