// SPDX-License-Identifier: Apache-2.0
// Pages without outside resources: the one style of all reports, tables, JSON for programs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::report {

/// Text for HTML and SVG: & < > " are replaced.
std::string escape_html(std::string_view text);

/// A whole page around `body`, which is HTML; `title` is plain text.
std::string html_page(std::string_view title, std::string_view body);

/// `json` as an element for programs, id "result": nothing in the data can end it.
std::string embedded_json(std::string_view json);

/// A table that scrolls on a narrow page; its first column is left-aligned.
class HtmlTable {
 public:
  /// The cells of the head are plain text.
  explicit HtmlTable(const std::vector<std::string>& head);
  /// The cells are HTML.
  void add(const std::vector<std::string>& row);
  std::string finish();

 private:
  std::string html_;
};

}  // namespace slimgemm::report
