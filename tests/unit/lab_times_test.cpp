// SPDX-License-Identifier: Apache-2.0
#include "lab/times.hpp"

#include <gtest/gtest.h>
#include <slimgemm/error.hpp>

#include <cstdio>
#include <fstream>
#include <string>

namespace slimgemm::lab {
namespace {

const std::string load_rows = "load,baseline_us,ours_us\n";
const std::string shape_rows = "load,layer,baseline_us,ours_us\n";

std::string refusal(const std::string& csv) {
  try {
    parse_times_csv(csv, "t.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(TimesCsv, ReadsBothKindsOfRows) {
  const TimesTable table = parse_times_csv(
      "\xEF\xBB\xBF# a comment\r\n"
      " load , baseline_us ,ours_us # columns\r\n"
      "\r\n"
      "decode 16, 75.94,\t54.03 # note\r\n" +
          shape_rows + "verify 32,router,45.9,1e1",
      "t.csv");
  ASSERT_TRUE(table.loads[1].sum);
  EXPECT_DOUBLE_EQ(table.loads[1].sum->baseline_us, 75.94);
  EXPECT_DOUBLE_EQ(table.loads[1].sum->ours_us, 54.03);
  EXPECT_EQ(table.loads[1].shapes_given(), 0);
  ASSERT_TRUE(table.loads[5].shapes[4]);
  EXPECT_DOUBLE_EQ(table.loads[5].shapes[4]->ours_us, 10);
  EXPECT_FALSE(table.loads[5].sum);
  EXPECT_TRUE(table.loads[0].empty());
  EXPECT_TRUE(table.verdict.empty());
}

TEST(TimesCsv, RefusalsNameLineValueAndWhatIsAllowed) {
  EXPECT_EQ(
      refusal(load_rows + "decode 2,5,4\n"),
      "t.csv:2: load 'decode 2' is unknown; allowed: decode 1, decode 16, decode 32, verify 1, "
      "verify 16, verify 32");
  EXPECT_EQ(refusal("# x\n\n" + shape_rows + "decode 1,poler,5,4\n"),
            "t.csv:4: layer 'poler' is unknown; allowed: qkv_gate, o, pooler, unpooler, router");
  EXPECT_EQ(refusal(load_rows + "decode 1,5\n"),
            "t.csv:2: 2 fields, 3 expected: load,baseline_us,ours_us");
  EXPECT_EQ(refusal("decode 1,5,4\n"),
            "t.csv:1: 'decode 1' stands before any header; begin with the line "
            "'load,baseline_us,ours_us' or 'load,layer,baseline_us,ours_us'");
  EXPECT_EQ(
      refusal("load,ours_us,baseline_us\n"),
      "t.csv:1: the header is 'load,ours_us,baseline_us'; allowed: 'load,baseline_us,ours_us' or "
      "'load,layer,baseline_us,ours_us'");
  EXPECT_EQ(refusal(load_rows + "decode 1,5,4\ndecode 16,5,4\ndecode 1,5,4\n"),
            "t.csv:4: load 'decode 1' was given on line 2 already; keep one");
  EXPECT_EQ(refusal(shape_rows + "decode 1,o,5,4\ndecode 1,o,5,4\n"),
            "t.csv:3: load 'decode 1', layer 'o' was given on line 2 already; keep one");
}

TEST(TimesCsv, TimesAreFiniteAndAboveZero) {
  for (const char* time : {"0", "-1", "nan", "inf", "1e400", "", "3us", "1,5", "0x10", "2e9"}) {
    const std::string message = refusal(load_rows + "decode 1,5," + time + "\n");
    EXPECT_EQ(message.substr(0, 8), "t.csv:2:") << time << ": " << message;
  }
  EXPECT_EQ(
      refusal(load_rows + "decode 1,-1,5\n"),
      "t.csv:2: baseline_us is '-1'; allowed: a time in microseconds, above 0 and at most 1e+09");
}

TEST(TimesCsv, EmptyTablesAreRefused) {
  EXPECT_NE(refusal("").find("no times"), std::string::npos);
  EXPECT_NE(refusal("# only this\n").find("no times"), std::string::npos);
  EXPECT_NE(refusal(load_rows).find("no row of times"), std::string::npos);
}

TEST(TimesCsv, SumAndShapesOfALoadMustFit) {
  std::string all = load_rows + "decode 1,60,40\n" + shape_rows;
  for (const judge::LayerInfo& layer : judge::layers()) {
    all += "decode 1," + std::string(layer.name) + ",2,1\n";
  }
  EXPECT_NE(refusal(all).find("t.csv:2: load 'decode 1' is given as a sum and by all five shapes"),
            std::string::npos);
  EXPECT_NE(refusal(load_rows + "decode 1,60,40\n" + shape_rows + "decode 1,pooler,20,40\n")
                .find("the sum must be larger"),
            std::string::npos);
  EXPECT_NE(refusal(load_rows + "decode 1,60,40\n" + shape_rows + "decode 1,pooler,61,30\n")
                .find("the sum must be larger"),
            std::string::npos);
}

TEST(TimesFile, MissingFileIsNamed) {
  try {
    read_times("/no/such/table.csv");
    FAIL() << "a missing file was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io_error);
    EXPECT_NE(std::string(error.what()).find("'/no/such/table.csv'"), std::string::npos);
  }
  EXPECT_THROW(read_times("/"), Error);
}

}  // namespace
}  // namespace slimgemm::lab
