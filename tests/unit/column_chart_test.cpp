// SPDX-License-Identifier: Apache-2.0
#include "report/column_chart.hpp"
#include "report/html_page.hpp"
#include "report/wrapped.hpp"
#include "unit/text_test_support.hpp"

#include <gtest/gtest.h>

namespace slimgemm::report {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

// 420 units less 60 on the left and 8 on the right: four columns of 88.
TEST(ColumnChart, PlacesColumnsAndShade) {
  ColumnChart chart;
  chart.title = "a < b";
  chart.columns = {{10, 0, "ten", "x", {}},
                   {0, 0, "", "", {}},
                   {5, 2, "five & more", "", 2.5},
                   {20, 1, "", "", {}}};
  chart.shade = Shade{1, 3, "window"};
  chart.levels = {{16, "sixteen"}};
  const std::string svg = draw(chart);
  EXPECT_TRUE(contains(svg, "aria-label=\"a &lt; b\""));
  EXPECT_TRUE(contains(svg, "<title>five &amp; more</title>"));
  EXPECT_EQ(count(svg, "<title>"), 3U) << "a column of 0 is not drawn";
  EXPECT_TRUE(contains(svg, "class=\"shade\" x=\"148.0\" y=\"18.0\" width=\"176.0\""));
  EXPECT_EQ(count(svg, "class=\"dot\""), 1U);
  EXPECT_TRUE(contains(svg, ">sixteen</text>"));
  // The axis ends at 21, 5 % above the largest value: 20 leaves 152 / 21 units above it.
  EXPECT_TRUE(contains(svg, "class=\"s1\" x=\"324.50\" y=\"25.2\"")) << svg;
}

TEST(ColumnChart, LogarithmicAxisOfShares) {
  ColumnChart chart;
  chart.logarithmic = true;
  chart.low = 1e-4;
  chart.columns = {{1, 0, "", "", {}}, {1e-2, 1, "", "", {}}, {1e-9, 2, "", "", {}}};
  const std::string svg = draw(chart);
  EXPECT_TRUE(contains(svg, "class=\"s0\" x=\"60.50\" y=\"18.0\"")) << "all of it, to the top";
  EXPECT_TRUE(contains(svg, "class=\"s1\" x=\"177.83\" y=\"94.0\"")) << "two of four decades";
  EXPECT_TRUE(contains(svg, "class=\"s2\" x=\"295.17\" y=\"169.5\"")) << "below, but not invisible";
  EXPECT_TRUE(contains(svg, ">100 %</text>"));
  EXPECT_TRUE(contains(svg, ">0.01 %</text>"));
}

TEST(ColumnChart, NothingToDraw) { EXPECT_TRUE(contains(draw(ColumnChart{}), "</svg>")); }

TEST(HtmlPage, EmbeddedJsonCanNotEndItsElement) {
  const std::string html = embedded_json(R"({"a": "</script>"})");
  EXPECT_EQ(count(html, "</script>"), 1U);
  EXPECT_TRUE(contains(html, "\\u003c/script>"));
  EXPECT_TRUE(contains(html_page("<t>", "<p>b</p>"), "<title>&lt;t&gt;</title>"));
}

TEST(Wrapped, BreaksAtBlanks) {
  EXPECT_EQ(wrapped("- ", "short"), "- short\n");
  EXPECT_EQ(wrapped("", ""), "\n");
  const std::string text = wrapped("- ", std::string(60, 'a') + " " + std::string(60, 'b'));
  EXPECT_EQ(text, "- " + std::string(60, 'a') + "\n  " + std::string(60, 'b') + "\n");
  EXPECT_EQ(wrapped("", std::string(120, 'c')), std::string(120, 'c') + "\n") << "no blank";
}

}  // namespace
}  // namespace slimgemm::report
