// SPDX-License-Identifier: Apache-2.0
#include "judge/report.hpp"

#include "judge/progress.hpp"
#include "report/bar_chart.hpp"
#include "unit/text_test_support.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

namespace slimgemm::judge {
namespace {

using report::BarChart;
using report::draw;
using report::short_number;

Spread times(double median) { return {9, median, median * 0.99, median * 1.01}; }

// Every shape at 10 us against the baseline's 15; sound.
RunResult full_result() {
  RunResult result;
  result.layers = layers();
  result.contender = {"ours", 1.5, {}};
  result.baselines = {{"theirs", 0.5, {}}};
  result.weights = "generated";
  result.empty_us = 4.25;
  result.replays_queued = 12;
  for (const Case& c : all_cases()) {
    CaseResult entry{};
    entry.replays_queued = 12;
    entry.shape = resolve(c);
    entry.floor_us = floor_us(c);
    entry.weight_bytes = 1000;
    entry.contender.errors = {0.001, 0.002, 0};
    entry.contender.inputs_checked = 3;
    entry.contender.replays_checked = 9;
    if (c.scored) {
      entry.contender.time = times(10);
      entry.baselines.resize(1);
      entry.baselines[0].emplace();
      entry.baselines[0]->side.time = times(15);
      entry.baselines[0]->speedup = Interval{1.5, 1.4, 1.6, 0.96};
      entry.ceiling_us = 8;
    }
    result.cases.push_back(entry);
  }
  summarise(result);
  return result;
}

ReportFacts some_facts(bool is_cuda = true) {
  ReportFacts facts;
  facts.command_line = "slimgemm judge";
  facts.version = "1.2.3";
  facts.commit = "abc";
  facts.date = "2026-01-31T12:34:56Z";
  facts.seed = 7;
  facts.is_cuda = is_cuda;
  facts.device = {{"device", "Some GPU"}, {"driver", "1"}};
  return facts;
}

Failure some_failure() {
  Failure failure{};
  failure.kind = FailureKind::row_error;
  failure.layer = "o";
  failure.m = 16;
  failure.row = 3;
  failure.column = 4;
  failure.got = 1;
  failure.expected = 2;
  return failure;
}

TEST(Summary, LoadsAreSumsAndTheScoreTheirMean) {
  const RunResult result = full_result();
  ASSERT_EQ(result.loads.size(), 6U);
  for (const LoadResult& load : result.loads) {
    EXPECT_DOUBLE_EQ(load.ours_us, 50);
    EXPECT_DOUBLE_EQ(load.against(0)->us, 75);
    EXPECT_DOUBLE_EQ(load.ceiling_us, 40);
  }
  EXPECT_NEAR(result.loads[0].floor_us, 28.85, 0.005);
  EXPECT_DOUBLE_EQ(result.score.value(), 1.5);
  EXPECT_EQ(no_score_reason(result), "");
}

TEST(Summary, NoScoreWithoutAllShapesOrWithAFailure) {
  RunResult subset = full_result();
  subset.cases.erase(subset.cases.begin());
  summarise(subset);
  EXPECT_EQ(subset.loads.size(), 5U);
  EXPECT_FALSE(subset.score.has_value());
  EXPECT_EQ(no_score_reason(subset), "only 29 of the 30 scored shapes were run");

  RunResult alone = full_result();
  for (CaseResult& c : alone.cases) c.baselines.clear();
  alone.baselines.clear();
  summarise(alone);
  EXPECT_EQ(alone.loads.size(), 6U);
  EXPECT_EQ(alone.loads[0].against(0), nullptr);
  EXPECT_EQ(no_score_reason(alone), "there is no baseline");

  RunResult failed = full_result();
  failed.cases.back().contender.failures.push_back(some_failure());
  summarise(failed);
  EXPECT_FALSE(failed.score.has_value());
  EXPECT_EQ(verdict(failed), Verdict::failed);

  RunResult invalid = full_result();
  invalid.cases[3].baselines[0]->side.failures.push_back(some_failure());
  summarise(invalid);
  EXPECT_FALSE(invalid.score.has_value());
  EXPECT_EQ(verdict(invalid), Verdict::invalid);
}

TEST(TextReport, HasAllFigures) {
  const std::string text = text_report(full_result(), some_facts());
  EXPECT_TRUE(contains(text, "device: Some GPU"));
  EXPECT_TRUE(contains(text, "1.500 [1.400, 1.600]"));
  EXPECT_TRUE(
      contains(text, "decode 1     1    50.00        75.00    1.500     28.85       40.00"));
  EXPECT_TRUE(contains(text, "score: 1.500"));
  EXPECT_TRUE(contains(text, "verdict: passed (shapes checked: 39, timed: 30;"));
  std::istringstream lines(text);
  std::size_t width = 0;
  int rows = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.ends_with(" ok")) continue;
    width = width == 0 ? line.size() : width;
    EXPECT_EQ(line.size(), width) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 39);
}

TEST(TextReport, SaysHowManyReplaysWereQueued) {
  RunResult result = full_result();
  const std::string all = text_report(result, some_facts());
  EXPECT_TRUE(contains(all, "; empty replay 4.25 us, subtracted; replays queued: 12\n"));
  EXPECT_FALSE(contains(all, "note:")) << all;
  EXPECT_TRUE(contains(markdown_report(result, some_facts()), "(replays queued: 12)"));
  result.cases[3].replays_queued = 5;
  result.cases[38].replays_queued = 1;
  const std::string less = text_report(result, some_facts());
  EXPECT_TRUE(contains(less, "note: unpooler m=1: replays queued: 5; the outputs of more would"));
  EXPECT_FALSE(contains(less, "note: unpooler m=1000")) << "it has no time";
}

TEST(TextReport, ShowsTheH200FloorOnAGpuOnly) {
  EXPECT_TRUE(contains(text_report(full_result(), some_facts(true)), "floor"));
  EXPECT_FALSE(contains(text_report(full_result(), some_facts(false)), "floor"));
}

TEST(TextReport, NamesFailuresAndShapesThatWaver) {
  RunResult result = full_result();
  result.cases[6].contender.failures.push_back(some_failure());
  result.cases[7].contender.bit_identical = false;
  summarise(result);
  const std::string text = text_report(result, some_facts());
  EXPECT_TRUE(contains(text, "FAILED: ours: o m=16: wrong row at row 3, column 4: got 1, "));
  EXPECT_TRUE(contains(text, "note: pooler m=16: replays on the same x differ"));
  EXPECT_TRUE(contains(text, "no score: the contender broke a rule"));
  EXPECT_TRUE(contains(text, "verdict: failed"));
}

#if SLIMGEMM_HAVE_JSON
TEST(JsonReport, FollowsItsSchema) {
  const auto json = nlohmann::json::parse(json_report(full_result(), some_facts()));
  EXPECT_EQ(json["schema"], "slimgemm-judge-1");
  EXPECT_EQ(json["device"]["device"], "Some GPU");
  EXPECT_EQ(json["device_kind"], "cuda");
  EXPECT_EQ(json["seed"], 7);
  EXPECT_EQ(json["replays_queued"], 12);
  EXPECT_EQ(json["shapes"].size(), 39U);
  const auto& shape = json["shapes"][3];
  EXPECT_EQ(shape["layer"], "unpooler");
  EXPECT_EQ(shape["n"], 1024);
  EXPECT_EQ(shape["replays_queued"], 12);
  EXPECT_EQ(shape["contender"]["median_us"], 10.0);
  EXPECT_EQ(shape["baseline"]["median_us"], 15.0);
  EXPECT_EQ(shape["speedup"]["low"], 1.4);
  EXPECT_EQ(shape["limits"]["l2"], 0.01);
  EXPECT_TRUE(json["shapes"][38]["contender"]["median_us"].is_null());
  EXPECT_TRUE(json["shapes"][38]["baseline"].is_null());
  EXPECT_EQ(json["loads"][5]["name"], "verify 32");
  EXPECT_DOUBLE_EQ(json["score"], 1.5);
  EXPECT_EQ(json["verdict"], "passed");
}

// Every field of a report is documented.
TEST(JsonReport, EveryFieldIsInTheSchemaPage) {
  RunResult result = full_result();
  result.cases[0].contender.failures.push_back(some_failure());
  const auto json = nlohmann::json::parse(json_report(result, some_facts()));
  std::ifstream file(std::string(SLIMGEMM_SOURCE_DIR) + "/docs/report-schema.md");
  std::stringstream page;
  page << file.rdbuf();
  const auto expect_documented = [&](const nlohmann::json& object) {
    for (const auto& [key, value] : object.items()) {
      EXPECT_TRUE(contains(page.str(), "`" + key + "`")) << key;
    }
  };
  expect_documented(json);
  expect_documented(json["contender"]);
  expect_documented(json["shapes"][0]);
  expect_documented(json["shapes"][0]["contender"]);
  expect_documented(json["shapes"][0]["contender"]["errors"]);
  expect_documented(json["shapes"][0]["contender"]["failures"][0]);
  expect_documented(json["shapes"][0]["speedup"]);
  expect_documented(json["shapes"][0]["limits"]);
  expect_documented(json["loads"][0]);
}

TEST(JsonReport, WhatCannotBeComputedIsNull) {
  RunResult result = full_result();
  result.cases[0].contender.errors.l2 = std::numeric_limits<double>::infinity();
  result.contender.name = "bad \xFF name";
  const auto json = nlohmann::json::parse(json_report(result, some_facts()));
  EXPECT_TRUE(json["shapes"][0]["contender"]["errors"]["l2"].is_null());
}

TEST(HtmlReport, IsOnePageWithChartsAndTheJson) {
  RunResult result = full_result();
  result.contender.name = "a <b> & \"c\" </script>";
  const std::string html = html_report(result, some_facts());
  std::size_t charts = 0;
  for (std::size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 7U) << "six loads and the speedups";
  EXPECT_TRUE(contains(html, "a &lt;b&gt; &amp; &quot;c&quot;"));
  EXPECT_FALSE(contains(html, "<b>"));
  EXPECT_FALSE(contains(html, "http")) << "nothing from outside";
  EXPECT_TRUE(contains(html, "<td>replays queued</td><td>12</td>"));
  const std::string open = "<script type=\"application/json\" id=\"result\">";
  const auto begin = html.find(open) + open.size();
  const auto end = html.find("</script>", begin);
  const auto json = nlohmann::json::parse(html.substr(begin, end - begin));
  EXPECT_EQ(json["contender"]["name"], result.contender.name);
}

TEST(HtmlReport, OmitsWhatWasNotMeasured) {
  RunResult result = full_result();
  result.cases.erase(result.cases.begin(), result.cases.begin() + 30);
  summarise(result);
  const std::string html = html_report(result, some_facts(false));
  EXPECT_FALSE(contains(html, "<svg "));
  EXPECT_TRUE(contains(html, "No score: only 0 of the 30 scored shapes were run."));
  EXPECT_FALSE(contains(html_report(full_result(), some_facts(false)), "floor: dense bytes"));
}
#else
TEST(JsonReport, IsRefusedWithoutJson) {
  EXPECT_FALSE(reports_available());
  EXPECT_THROW(json_report(full_result(), some_facts()), Error);
}
#endif

TEST(Chart, BarsAreAsLongAsTheirValues) {
  BarChart chart;
  chart.title = "t";
  chart.groups = {{"a", {100.0, 50.0}}, {"b", {std::nullopt, 25.0}}};
  const std::string svg = draw(chart);
  EXPECT_EQ(std::count(svg.begin(), svg.end(), '\n'), 4);
  EXPECT_TRUE(contains(svg, "width=\"294.0\""));
  EXPECT_TRUE(contains(svg, "width=\"147.0\""));
  EXPECT_TRUE(contains(svg, "width=\"73.5\""));
  EXPECT_EQ(short_number(8.354), "8.35");
  EXPECT_EQ(short_number(20.06), "20.1");
  EXPECT_EQ(short_number(1234.4), "1234");
}

TEST(WriteFile, ReplacesTheWholeFileAndNamesWhatItCannotWrite) {
  const auto folder = std::filesystem::temp_directory_path() / "slimgemm_report_test";
  std::filesystem::create_directories(folder);
  const std::string path = folder / "a.json";
  write_file(path, "first, and longer");
  write_file(path, "second");
  std::ifstream file(path);
  std::string content;
  std::getline(file, content);
  EXPECT_EQ(content, "second");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
  try {
    write_file(path, "x");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    EXPECT_TRUE(contains(error.what(), path));
    EXPECT_TRUE(contains(error.what(), "No such file"));
  }
}

std::string progress_output(bool is_terminal) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, is_terminal);
    progress.update("first", 0);
    progress.update("second", 0.5);
  }
  std::rewind(file);
  char text[1000] = {};
  const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  return {text, length};
}

TEST(Progress, RewritesALineOnATerminalAndIsSparseElsewhere) {
  const std::string terminal = progress_output(true);
  EXPECT_TRUE(contains(terminal, "\r 50 %  second  elapsed 0:00, about 0:00 left"));
  EXPECT_EQ(std::count(terminal.begin(), terminal.end(), '\n'), 0);
  EXPECT_EQ(progress_output(false), "  0 %  first  elapsed 0:00\n");
  EXPECT_EQ(format_duration(754.4), "12:34");
}

}  // namespace
}  // namespace slimgemm::judge
