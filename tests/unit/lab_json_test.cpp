// SPDX-License-Identifier: Apache-2.0
// The lab reads what the judge writes: reports are made by the judge's own writer.
#include "judge/report.hpp"
#include "lab/score.hpp"

#include <gtest/gtest.h>
#include <slimgemm/error.hpp>

#include <string>

namespace slimgemm::lab {
namespace {

class LabJson : public testing::Test {
 protected:
  void SetUp() override {
    if (!json_supported()) {
      GTEST_SKIP() << "this build has no nlohmann-json";
    }
    result_.contender.name = "slimgemm";
    result_.baselines = {{"sglang", {}, {}}};
    facts_.device = {{"device", "NVIDIA H200"}};
    for (const judge::Case& c : judge::all_cases()) {
      judge::CaseResult shape{};
      shape.shape = judge::resolve(c);
      shape.floor_us = judge::floor_us(c);
      judge::BaselineResult& baseline = shape.baselines.emplace_back().emplace();
      if (c.scored) {
        // Ours: 1.1 times the floor, and the baseline twice that but for the router's four times.
        shape.contender.time = judge::Spread{9, 1.1 * shape.floor_us, 0, 0};
        const double factor = c.layer == judge::Layer::router ? 4 : 2;
        baseline.side.time = judge::Spread{9, factor * 1.1 * shape.floor_us, 0, 0};
      }
      result_.cases.push_back(shape);
    }
    judge::summarise(result_);
  }

  TimesTable read() { return parse_judge_json(judge::json_report(result_, facts_), "run.json"); }

  std::string refusal(const std::string& json) {
    try {
      parse_judge_json(json, "run.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  }

  /// The report with the first `from` replaced.
  std::string edited(const std::string& from, const std::string& to) {
    std::string json = judge::json_report(result_, facts_);
    const std::size_t at = json.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? json : json.replace(at, from.size(), to);
  }

  judge::RunResult result_;
  judge::ReportFacts facts_;
};

TEST_F(LabJson, GivesTheJudgesOwnLoadsAndScore) {
  const TimesTable table = read();
  const Score score = compute_score(table);
  ASSERT_EQ(score.loads.size(), result_.loads.size());
  ASSERT_EQ(score.whole_loads, 6);
  for (std::size_t i = 0; i < score.loads.size(); ++i) {
    EXPECT_NEAR(score.loads[i].time.ours_us, result_.loads[i].ours_us, 1e-9);
    EXPECT_NEAR(score.loads[i].time.speedup(), result_.loads[i].against(0)->speedup, 1e-9);
    EXPECT_NEAR(score.loads[i].floors.dense_us, result_.loads[i].floor_us, 1e-9);
    EXPECT_EQ(score.loads[i].shapes.size(), 5U);
  }
  EXPECT_NEAR(score.score.value(), result_.score.value(), 1e-9);
  EXPECT_NEAR(table.stated_score.value(), result_.score.value(), 1e-9);
  EXPECT_EQ(table.verdict, "passed");
  EXPECT_EQ(table.source, "run.json: slimgemm (ours) against sglang (baseline), NVIDIA H200");
}

TEST_F(LabJson, ShapesThatWereNotTimedAreLeftOut) {
  result_.cases.at(0).contender.time.reset();
  result_.cases.at(6).baselines.clear();
  judge::summarise(result_);
  const TimesTable table = read();
  EXPECT_EQ(table.loads[0].shapes_given(), 4);
  EXPECT_EQ(table.loads[1].shapes_given(), 4);
  EXPECT_EQ(compute_score(table).whole_loads, 4);
  EXPECT_FALSE(table.stated_score);
}

TEST_F(LabJson, FailedRunKeepsItsVerdict) {
  judge::Failure failure{};
  failure.kind = judge::FailureKind::not_finite;
  result_.cases.at(3).contender.failures.push_back(failure);
  judge::summarise(result_);
  EXPECT_EQ(read().verdict, "failed");
}

TEST_F(LabJson, WithoutBaselineThereIsNoSpeedup) {
  result_.baselines.clear();
  EXPECT_NE(refusal(judge::json_report(result_, facts_)).find("no baseline"), std::string::npos);
}

// The layers of a shape file may have the names of the five: their times are no load's.
TEST_F(LabJson, AShapeFilesRunHasNoScore) {
  result_.shape_file = "served.json";
  EXPECT_EQ(refusal(judge::json_report(result_, facts_)),
            "run.json: the run judged the shape file served.json; a score is the fixed problem's");
}

TEST_F(LabJson, ReportsFromBeforeShapeFilesAreRead) {
  EXPECT_EQ(parse_judge_json(edited("\"shape_file\"", "\"other\""), "run.json").verdict, "passed");
}

TEST_F(LabJson, RefusalsNameTheField) {
  EXPECT_NE(refusal("{").find("run.json: not JSON"), std::string::npos);
  EXPECT_NE(refusal("[1]").find("no field 'schema'"), std::string::npos);
  EXPECT_EQ(refusal(edited("slimgemm-judge-1", "slimgemm-judge-9")),
            "run.json: schema is 'slimgemm-judge-9'; this version reads 'slimgemm-judge-1'");
  EXPECT_EQ(refusal(edited("\"layer\": \"o\"", "\"layer\": \"p\"")),
            "run.json: shapes[1]: layer 'p' is none of the five");
  EXPECT_EQ(refusal(edited("\"layer\": \"o\"", "\"layer\": \"qkv_gate\"")),
            "run.json: shapes[1] is a shape that was given before");
  EXPECT_EQ(refusal(edited("\"m\": 1,", "\"m\": 3,")),
            "run.json: shapes[0]: m is 3, which is none of the six loads");
  EXPECT_NE(
      refusal(edited("\"median_us\": ", "\"median_us\": -")).find("shapes[0].contender.median_us"),
      std::string::npos);
  EXPECT_NE(refusal(edited("\"scored\": true", "\"scored\": {}")).find("scored is an object"),
            std::string::npos);
  EXPECT_NE(refusal(edited("\"verdict\"", "\"verdicts\"")).find("no field 'verdict'"),
            std::string::npos);
}

TEST_F(LabJson, NothingTimedIsRefused) {
  for (judge::CaseResult& shape : result_.cases) {
    shape.contender.time.reset();
  }
  EXPECT_NE(refusal(judge::json_report(result_, facts_)).find("no shape was timed"),
            std::string::npos);
}

}  // namespace
}  // namespace slimgemm::lab
