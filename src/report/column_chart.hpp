// SPDX-License-Identifier: Apache-2.0
// Charts of columns side by side, for histograms and for series along the layers of a model.
// Colours come from the page's CSS (html_page.hpp).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::report {

struct Column {
  double value = 0;                          ///< 0: nothing is drawn
  int series = 0;                            ///< its colour: class s0, s1, ...
  std::string tip;                           ///< shown when a pointer rests on it; plain text
  std::string label;                         ///< below the axis; empty: none
  std::optional<double> dot = std::nullopt;  ///< a second value, drawn as a dot
};

/// A range of columns with a shade behind it.
struct Shade {
  std::size_t first = 0;
  std::size_t end = 0;  ///< one past the last column
  std::string label;
};

/// A dashed horizontal line.
struct Level {
  double value = 0;
  std::string label;
};

struct ColumnChart {
  std::string title;    ///< for screen readers
  std::string x_title;  ///< below the labels of the columns
  std::vector<Column> columns;
  std::optional<Shade> shade;
  std::vector<Level> levels;
  bool logarithmic = false;  ///< values are shares of 1; the axis is in percent, by powers of ten
  double low = 1e-9;         ///< logarithmic: the lower end of the axis
};

/// The drawing is 420 units wide and scales with the page. A linear axis begins at 0.
std::string draw(const ColumnChart& chart);

}  // namespace slimgemm::report
