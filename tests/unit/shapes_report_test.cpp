// SPDX-License-Identifier: Apache-2.0
// Reports of a shape file's run against two baselines, and what they say as a whole.
#include "judge/report.hpp"
#include "judge/shapes_summary.hpp"
#include "report/bar_chart.hpp"
#include "unit/text_test_support.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

namespace slimgemm::judge {
namespace {

using report::BarChart;
using report::draw;

BaselineResult baseline(double speedup) {
  BaselineResult result;
  result.side.time = Spread{9, 10 * speedup, 0, 0};
  result.speedup = Interval{speedup, speedup - 0.02, speedup + 0.02, 0.96};
  return result;
}

// One shape at 10 us, its speedups over the two baselines given.
CaseResult shape(const LayerInfo& layer, std::int64_t m, double first, double second) {
  CaseResult entry{};
  entry.shape = {layer.layer, layer.name, m, layer.n, layer.k, layer.dtype, true};
  entry.floor_us = floor_us(entry.shape);
  entry.ceiling_us = 8;
  entry.contender.time = Spread{9, 10, 9.9, 10.1};
  entry.baselines = {baseline(first), baseline(second)};
  return entry;
}

RunResult shapes_result() {
  RunResult result;
  result.shape_file = "my.json";
  // 20.0 MB, which is not over 20 MB; 50 MB; FP32.
  result.layers = {{Layer{0}, "small", 1000, 10000, DType::bf16, "s", 1000, 0},
                   {Layer{1}, "large", 2500, 10000, DType::bf16, "l <1>", 2500, 0},
                   {Layer{2}, "router", 2500, 10000, DType::f32, "", 2500, 0}};
  result.contender = {"ours", 1.5, {}};
  result.baselines = {{"theirs", 0.5, {}}, {"best", 2.0, {}}};
  result.cases = {shape(result.layers[0], 1, 1.1, 0.9), shape(result.layers[1], 16, 1.3, 1.2),
                  shape(result.layers[1], 17, 1.2, 1.2), shape(result.layers[2], 1, 2.0, 1.0)};
  summarise(result);
  return result;
}

ReportFacts shapes_facts() {
  ReportFacts facts;
  facts.command_line = "slimgemm judge --shapes my.json";
  facts.version = "1.2.3";
  facts.commit = "abc";
  facts.date = "2026-01-31T12:34:56Z";
  facts.is_cuda = true;
  facts.device = {{"device", "Some GPU"}};
  return facts;
}

TEST(ShapesSummary, CountsSlowerAndLargeShapes) {
  const RunResult result = shapes_result();
  const auto summaries = summarise_shapes(result);
  ASSERT_EQ(summaries.size(), 2U);
  EXPECT_EQ(summaries[0].compared.size(), 4U);
  EXPECT_NEAR(summaries[0].geometric_mean, std::pow(1.1 * 1.3 * 1.2 * 2.0, 0.25), 1e-12);
  EXPECT_TRUE(summaries[0].slower.empty());
  ASSERT_EQ(summaries[0].large.size(), 1U) << "over 20 MB, BF16 and m <= 16";
  EXPECT_EQ(summaries[0].large[0], &result.cases[1]);
  EXPECT_TRUE(summaries[0].large_below.empty());
  ASSERT_EQ(summaries[1].slower.size(), 1U) << "as fast is not slower";
  EXPECT_EQ(summaries[1].slower[0], &result.cases[0]);
  ASSERT_EQ(summaries[1].large_below.size(), 1U);
}

TEST(ShapesSummary, ShapesWithoutABaselineCountNowhere) {
  RunResult result = shapes_result();
  for (CaseResult& c : result.cases) c.baselines[1].reset();
  const auto summaries = summarise_shapes(result);
  EXPECT_TRUE(summaries[1].compared.empty());
  EXPECT_TRUE(contains(shapes_summary_text(result, "", ""), "against best: no shape was timed"));
}

TEST(ShapesSummary, NamesTheLowestFirstAndNotAll) {
  RunResult result = shapes_result();
  result.cases.clear();
  for (int i = 0; i < 11; ++i) {
    result.cases.push_back(shape(result.layers[0], i + 1, i == 6 ? 0.5 : 0.9, 1));
  }
  const std::string text = shapes_summary_text(result, "", "");
  EXPECT_TRUE(
      contains(text, "slower than theirs: small m=7 0.500 [0.480, 0.520]; small m=1 0.900"));
  EXPECT_TRUE(contains(text, "small m=8 0.900 [0.880, 0.920]; and 3 more\n"));
}

TEST(ShapesSummary, AShapeFileHasNeitherLoadsNorScore) {
  RunResult result = shapes_result();
  // The names and token counts of the fixed problem make no difference.
  for (CaseResult& c : result.cases) c.shape.m = 1;
  summarise(result);
  EXPECT_TRUE(result.loads.empty());
  EXPECT_FALSE(result.score.has_value());
}

TEST(ShapesReport, TextHasSizesBothBaselinesAndTheSummary) {
  const std::string text = text_report(shapes_result(), shapes_facts());
  EXPECT_TRUE(contains(text, "baseline: theirs and best\n"));
  EXPECT_TRUE(contains(text, "theirs us  theirs / ours [95 %]"));
  EXPECT_TRUE(contains(text, "best us    best / ours [95 %]"));
  EXPECT_TRUE(contains(text, "large   2500  10000  16    10.00      13.00  1.300 [1.280, 1.320]"));
  EXPECT_TRUE(contains(text,
                       "against theirs: geometric mean of the speedups 1.361 (4 shapes; no "
                       "score)\n  slower than theirs: none\n  over 20 MB and m <= 16: 1 of 1 "
                       "shapes reach 1.25\n"));
  EXPECT_TRUE(contains(text, "slower than best: small m=1 0.900 [0.880, 0.920]\n"));
  EXPECT_TRUE(contains(text, "0 of 1 shapes reach 1.25; below: large m=16 1.200 [1.180, 1.220]\n"));
  EXPECT_TRUE(contains(text, "no score: a score is the fixed problem's, and this is a shape file"));
}

TEST(ShapesReport, MarkdownIsATableOfAllSides) {
  const std::string text = markdown_report(shapes_result(), shapes_facts());
  EXPECT_TRUE(contains(text,
                       "| layer | N | K | m | ours us | theirs us | best us | ceiling us | of "
                       "ceiling | theirs / ours | best / ours |\n"
                       "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"));
  EXPECT_TRUE(contains(text,
                       "| large | 2500 | 10000 | 16 | 10.00 | 13.00 | 12.00 | 8.00 | 80 % | "
                       "1.300 | 1.200 |\n"));
  EXPECT_TRUE(contains(text, "- against best: geometric mean"));
  EXPECT_TRUE(contains(text, "`slimgemm judge --shapes my.json`, version 1.2.3 (abc), Some GPU"));
}

#if SLIMGEMM_HAVE_JSON
TEST(ShapesReport, JsonHasBothBaselinesAndTheSummary) {
  const auto json = nlohmann::json::parse(json_report(shapes_result(), shapes_facts()));
  EXPECT_EQ(json["shape_file"], "my.json");
  EXPECT_EQ(json["layers"][1]["role"], "l <1>");
  EXPECT_EQ(json["baseline"]["name"], "theirs");
  ASSERT_EQ(json["other_baselines"].size(), 1U);
  EXPECT_EQ(json["other_baselines"][0]["name"], "best");
  const auto& entry = json["shapes"][1];
  EXPECT_EQ(entry["speedup"]["median"], 1.3);
  EXPECT_EQ(entry["baseline"]["median_us"], 13.0);
  EXPECT_EQ(entry["other_baselines"][0]["name"], "best");
  EXPECT_EQ(entry["other_baselines"][0]["median_us"], 12.0);
  EXPECT_EQ(entry["other_baselines"][0]["speedup"]["median"], 1.2);
  EXPECT_TRUE(json["score"].is_null());
  const auto& summary = json["shapes_summary"][1];
  EXPECT_EQ(summary["baseline"], "best");
  EXPECT_EQ(summary["compared"], 4);
  EXPECT_EQ(summary["slower"][0]["layer"], "small");
  EXPECT_EQ(summary["slower"][0]["speedup"]["median"], 0.9);
  EXPECT_EQ(summary["large"], 1);
  EXPECT_EQ(summary["large_below"][0]["m"], 16);
}

TEST(ShapesReport, EveryFieldIsInTheSchemaPage) {
  const auto json = nlohmann::json::parse(json_report(shapes_result(), shapes_facts()));
  std::ifstream file(std::string(SLIMGEMM_SOURCE_DIR) + "/docs/report-schema.md");
  std::stringstream page;
  page << file.rdbuf();
  for (const auto& object :
       {json["shapes_summary"][0], json["layers"][0], json["shapes"][0]["other_baselines"][0]}) {
    for (const auto& [key, value] : object.items()) {
      EXPECT_TRUE(contains(page.str(), "`" + key + "`")) << key;
    }
  }
}

TEST(ShapesReport, HtmlHasAPairOfChartsATokenCount) {
  const std::string html = html_report(shapes_result(), shapes_facts());
  std::size_t charts = 0;
  for (std::size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 6U) << "m = 1, 16, 17";
  EXPECT_TRUE(contains(html, "l &lt;1&gt;"));
  EXPECT_TRUE(contains(html, "<i class=\"s1\"></i>over best"));
  EXPECT_TRUE(contains(html, "slower than best: small m=1"));
  EXPECT_TRUE(contains(html, "No score: a score is the fixed problem"));
}
#endif

TEST(Chart, LongLabelsGetRoom) {
  BarChart chart;
  chart.label_width = 150;
  chart.groups = {{"a", {1.0}}};
  EXPECT_TRUE(contains(draw(chart), "x=\"150.0\""));
  EXPECT_TRUE(contains(draw(chart), "width=\"218.0\"")) << "420 less the label and the value";
}

}  // namespace
}  // namespace slimgemm::judge
