// SPDX-License-Identifier: Apache-2.0
// What `slimgemm tune` writes: text, JSON, and the table of tuned plans.
#include "tune/layers.hpp"
#include "tune/report.hpp"
#include "tune/table.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace slimgemm::tune {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Attempt attempt(const plan::Instance& instance, double us, std::size_t replays = 101) {
  Attempt a;
  a.instance = instance;
  a.estimated_us = 12.25;
  a.time = judge::Spread{replays, us, us - 0.25, us + 0.25};
  a.finalist = replays > 50;
  return a;
}

/// The first three instances at `us`, 1.25 times that and 20 us; the second is the model's.
ShapeResult shape_of(const std::string& layer, std::int64_t rows, std::int64_t m, double us) {
  const std::vector<plan::Instance> instances = plan::instances_of(Encoding::split12);
  ShapeResult shape;
  shape.layer = layer;
  shape.problem = {.rows = rows, .k = 8192, .m = m, .x_aligned = false};
  shape.empty_us = 4.5;
  shape.model_choice = instances[1];
  shape.attempts = {attempt(instances[0], us), attempt(instances[1], 1.25 * us),
                    attempt(instances[2], 20, 11)};
  return shape;
}

Attempt failed(const plan::Instance& instance) {
  Attempt a;
  a.instance = instance;
  a.estimated_us = 9;
  a.failure = "cudaLaunchKernelExC: out of resources";
  return a;
}

std::string name_of(std::size_t index) {
  return plan::instance_name(plan::instances_of(Encoding::split12)[index]);
}

Facts some_facts() {
  Facts facts;
  facts.command_line = "slimgemm tune";
  facts.version = "1.2.3";
  facts.commit = "0123456789ab";
  facts.date = "2026-01-31T12:34:56Z";
  facts.device = {{"device", "NVIDIA H200"}, {"driver", "580"}};
  return facts;
}

TEST(TuneText, ShowsMeasuredBesideEstimated) {
  ShapeResult shape = shape_of("pooler", 4096, 16, 8);
  shape.attempts.push_back(failed(plan::instances_of(Encoding::split12)[3]));
  EXPECT_EQ(shape_text(shape),
            "pooler m=16: 4096 x 8192 in split12, 4 instances; best 8.00 us, the cost model's "
            "choice 10.00 us (1.250 times)\n"
            "      8.00 us, estimated    12.25, 101 replays  " +
                name_of(0) +
                "\n"
                "     10.00 us, estimated    12.25, 101 replays  " +
                name_of(1) +
                "  <- model\n"
                "     20.00 us, estimated    12.25,  11 replays  " +
                name_of(2) +
                "\n"
                "    failed, estimated     9.00: " +
                name_of(3) + ": cudaLaunchKernelExC: out of resources\n");
}

TEST(TuneText, SaysWhatFailed) {
  ShapeResult shape = shape_of("o", 8192, 1, 8);
  shape.attempts[1] = failed(shape.model_choice);
  EXPECT_NE(shape_text(shape).find("best 8.00 us, the cost model's choice failed\n"),
            std::string::npos);
  EXPECT_NE(summary_text({{}, {shape}}).find("0 of 1 shapes"), std::string::npos);
  EXPECT_NE(summary_text({{}, {shape}}).find("For 1 of them it is not known"), std::string::npos);
  for (Attempt& a : shape.attempts) a = failed(a.instance);
  EXPECT_NE(shape_text(shape).find("3 instances, all failed\n"), std::string::npos);
}

TEST(TuneText, SummaryCountsAndNamesTheWorst) {
  Result result;
  for (int i = 0; i < 8; ++i) {
    result.shapes.push_back(shape_of("layer" + std::to_string(i), 4096, 16, 8));
    result.shapes.back().attempts[1].time->median = 8 * (1 + 0.03 * i);
  }
  result.shapes[0].model_choice = result.shapes[0].attempts[0].instance;
  const std::string text = summary_text(result);
  EXPECT_TRUE(
      text.starts_with("The cost model's choice is within 10 % of the best for 4 of 8 shapes.\n"
                       "  layer7 m=16  1.210 times the best: 9.68 us with " +
                       name_of(1) + ", best 8.00 us with " + name_of(0) + "\n  layer6 m=16"))
      << text;
  EXPECT_NE(text.find("layer3"), std::string::npos);
  EXPECT_EQ(text.find("layer2"), std::string::npos) << "five are enough";
  result.shapes.resize(1);
  EXPECT_EQ(summary_text(result),
            "The cost model's choice is within 10 % of the best for 1 of 1 shapes.\n");
}

class TuneJson : public testing::Test {
 protected:
  void SetUp() override {
    if (!json_available()) GTEST_SKIP() << "this build has no nlohmann-json";
    result_.gpu.sm_count = 78;
    result_.shapes = {shape_of("pooler", 4096, 16, 8), shape_of("o", 8192, 1, 4)};
    result_.shapes[1].attempts.push_back(failed(plan::instances_of(Encoding::split12)[3]));
  }
  /// The message about the JSON with the first `from` replaced.
  std::string refusal(const std::string& from, const std::string& to) {
    std::string text = json_text(result_, some_facts());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    if (at != std::string::npos) text.replace(at, from.size(), to);
    return error_of([&] { parse_json(text, "t.json"); });
  }
  Result result_;
};

TEST_F(TuneJson, IsReadBack) {
  const MeasuredFile file = parse_json(json_text(result_, some_facts()), "t.json");
  EXPECT_EQ(file.gpu.sm_count, 78);
  EXPECT_EQ(file.gpu.smem_per_sm_bytes, plan::GpuFacts{}.smem_per_sm_bytes);
  ASSERT_EQ(file.shapes.size(), 2U);
  const MeasuredShape& shape = file.shapes[1];
  EXPECT_EQ(shape.layer, "o");
  EXPECT_EQ(shape.problem.rows, 8192);
  EXPECT_EQ(shape.problem.k, 8192);
  EXPECT_EQ(shape.problem.m, 1);
  EXPECT_EQ(shape.problem.encoding, Encoding::split12);
  EXPECT_FALSE(shape.problem.x_aligned);
  ASSERT_EQ(shape.instances.size(), 3U) << "not the one that failed";
  EXPECT_EQ(shape.instances[0].instance, name_of(0));
  EXPECT_EQ(shape.instances[0].median_us, 4);
  EXPECT_EQ(shape.instances[1].median_us, 5);
}

TEST_F(TuneJson, HoldsTheFacts) {
  const std::string text = json_text(result_, some_facts());
  for (const char* part :
       {"\"command\": \"slimgemm tune\"", "\"commit\": \"0123456789ab\"",
        "\"date\": \"2026-01-31T12:34:56Z\"", "\"device\": \"NVIDIA H200\"", "\"driver\": \"580\"",
        "\"empty_replay_us\": 4.5", "\"exception_share\": \"as in normal weights\"",
        "\"quartile_low_us\": 7.75", "\"replays\": 101",
        "\"failure\": \"cudaLaunchKernelExC: out of resources\""}) {
    EXPECT_NE(text.find(part), std::string::npos) << part;
  }
}

TEST_F(TuneJson, RefusalsNameTheField) {
  EXPECT_EQ(error_of([] { parse_json("{", "t.json"); }), "t.json: not JSON");
  EXPECT_EQ(error_of([] { parse_json("[]", "t.json"); }),
            "t.json: the file has no field 'schema' (docs/tuning.md)");
  EXPECT_EQ(refusal("slimgemm-tune-1", "slimgemm-tune-0"),
            "t.json: schema is 'slimgemm-tune-0'; this version reads 'slimgemm-tune-1'");
  EXPECT_EQ(refusal("\"sm_count\": 78", "\"sm_count\": 0"),
            "t.json: sm_count of the file must be an integer from 1 to 2147483647");
  EXPECT_EQ(refusal("\"m\": 16", "\"m\": 1.5"),
            "t.json: m of shapes[0] must be an integer from 1 to 2147483647");
  EXPECT_EQ(refusal("\"split12\"", "\"split\""),
            "t.json: shapes[0].encoding is split: it must be split12, raw16 or raw32");
  EXPECT_EQ(refusal("\"median_us\": 8.0", "\"median_us\": -8.0"),
            "t.json: median_us of shapes[0].instances[0] must be null or a number above 0");
}

TEST(TuneTable, TakesTheBestOfEveryShape) {
  Result result;
  result.gpu.sm_count = 78;
  result.shapes = {shape_of("pooler", 4096, 16, 8), shape_of("o", 8192, 1, 4)};
  for (Attempt& a : result.shapes[1].attempts) a = failed(a.instance);
  const auto plans = tuned_plans(result, source_text(some_facts()));
  ASSERT_EQ(plans.size(), 1U) << "where all fails nothing is best";
  EXPECT_EQ(plans[0].sm_count, 78);
  EXPECT_EQ(plans[0].rows, 4096);
  EXPECT_EQ(plans[0].k, 8192);
  EXPECT_EQ(plans[0].m, 16);
  EXPECT_EQ(plans[0].measured_us, 8);
  EXPECT_EQ(plans[0].instance, result.shapes[0].attempts[0].instance);
  EXPECT_EQ(plans[0].source, "NVIDIA H200, 2026-01-31, slimgemm 1.2.3 commit 0123456789ab");
}

plan::TunedPlan entry(int sm_count, std::int64_t rows, std::int64_t m, const std::string& source,
                      double us = 1) {
  plan::TunedPlan e;
  e.sm_count = sm_count;
  e.rows = rows;
  e.k = 8192;
  e.m = m;
  e.measured_us = us;
  e.instance = plan::instances_of(Encoding::split12).front();
  e.source = source;
  return e;
}

TEST(TuneTable, MergingKeepsOtherShapesAndDevices) {
  const std::vector<plan::TunedPlan> old{entry(114, 64, 1, "old"), entry(132, 64, 1, "old"),
                                         entry(132, 64, 16, "old"), entry(132, 96, 1, "old")};
  const std::vector<plan::TunedPlan> fresh{entry(132, 64, 8, "new", 2), entry(132, 64, 1, "new", 2),
                                           entry(144, 64, 1, "new", 2)};
  const std::vector<plan::TunedPlan> merged = merge(old, fresh);
  const std::vector<plan::TunedPlan> expected{old[0], fresh[1], fresh[0], old[2], old[3], fresh[2]};
  EXPECT_EQ(merged, expected);
  EXPECT_EQ(merge({}, {}), std::vector<plan::TunedPlan>{});
  EXPECT_EQ(merge(merged, fresh), merged);
}

TEST(TuneTable, TextIsReadBack) {
  const std::vector<plan::TunedPlan> entries{
      entry(114, 64, 1, "one", 9.25), entry(132, 64, 1, "one", 10),
      entry(132, 64, 8, "two\nlines", 123.5), entry(132, 64, 16, "one", 0.5)};
  const std::string text = table_text(entries);
  const plan::TuningText read = plan::read_tuning_table(text, "t.csv");
  EXPECT_TRUE(read.errors.empty());
  EXPECT_EQ(read.entries, entries);
  const std::string name = name_of(0);
  EXPECT_NE(text.find("\n# one\n114,split12,64,8192,1,9.25," + name +
                      "\n132,split12,64,8192,1,10.00," + name + "\n# two\n# lines\n132"),
            std::string::npos)
      << text;
}

TEST(TuneTable, TheShippedOneIsAsTheCommandWritesIt) {
  const auto entries = plan::shipped_tuning_table().entries();
  EXPECT_EQ(table_text({entries.begin(), entries.end()}), plan::shipped_tuning_text());
}

class TuneTableFile : public testing::Test {
 protected:
  void SetUp() override {
    // Tests run beside each other: a file for each.
    path_ = testing::TempDir() + "/slimgemm_tune_table_" +
            testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
    std::remove(path_.c_str());
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  void write(const std::string& text) { std::ofstream(path_) << text; }
  std::string path_;
};

TEST_F(TuneTableFile, NoFileIsAnEmptyTable) { EXPECT_TRUE(read_table_file(path_).entries.empty()); }

TEST_F(TuneTableFile, LeavesOutInstancesThatAreNoMore) {
  const std::string good = table_text({entry(132, 64, 1, "old")});
  write(good + "132,split12,64,8192,2,9.25,stream/gone\n");
  const plan::TuningText read = read_table_file(path_);
  EXPECT_EQ(read.entries.size(), 1U);
  ASSERT_EQ(read.unknown_instances.size(), 1U);
  EXPECT_NE(read.unknown_instances[0].find("'stream/gone'"), std::string::npos);
}

TEST_F(TuneTableFile, RefusesABadTableWithEveryLine) {
  write("one\ntwo\n");
  const std::string error = error_of([&] { read_table_file(path_); });
  EXPECT_NE(error.find(path_ + " line 1: "), std::string::npos) << error;
  EXPECT_NE(error.find("\n" + path_ + " line 2: "), std::string::npos) << error;
}

TEST_F(TuneTableFile, AFolderIsNoTable) {
  std::filesystem::create_directory(path_);
  EXPECT_EQ(error_of([&] { read_table_file(path_); }), "cannot read " + path_);
}

}  // namespace
}  // namespace slimgemm::tune
