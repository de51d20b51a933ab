// SPDX-License-Identifier: Apache-2.0
// The table of tuned plans: its text, bad texts, the lookup, and the plan that uses it. What the
// library ships must be without an error.
#include "plan/tuning_table.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace slimgemm::plan {
namespace {

const GpuFacts h200_facts{};

Instance slowest_by_model(const Problem& problem) {
  Instance slowest = plan_by_model(problem, h200_facts).instance;
  for (const Instance& instance : instances_of(problem.encoding)) {
    const double us = estimate_us(instance, problem, h200_facts);
    if (std::isfinite(us) && us > estimate_us(slowest, problem, h200_facts)) slowest = instance;
  }
  return slowest;
}

std::string first_name(Encoding encoding) { return instance_name(instances_of(encoding).front()); }

const std::string columns_line = std::string(tuning_columns) + "\n";
const std::string head = "# a table\n" + columns_line + "# NVIDIA H200, a test\n";
const std::string split12_name = first_name(Encoding::split12);
const std::string raw32_name = first_name(Encoding::raw32);

std::string line(const std::string& shape, const std::string& instance = split12_name) {
  return shape + ",9.25," + instance + "\n";
}

TuningText read(const std::string& text) { return read_tuning_table(text, "t.csv"); }

/// The one message about a text, whichever kind it is.
std::string complaint(const std::string& text) {
  const TuningText result = read(text);
  if (result.errors.size() + result.unknown_instances.size() != 1) {
    return std::to_string(result.errors.size()) + " errors";
  }
  return result.errors.empty() ? result.unknown_instances[0] : result.errors[0];
}

TEST(ShippedTuningTable, HasNoError) {
  for (const std::string& error : shipped_tuning_errors()) ADD_FAILURE() << error;
  EXPECT_EQ(shipped_tuning_table().entries().size(),
            read_tuning_table(shipped_tuning_text(), "shipped").entries.size());
}

TEST(ShippedTuningTable, IsTheFileInTheRepository) {
  std::ifstream file(SLIMGEMM_SOURCE_DIR "/tuning/plans.csv", std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), shipped_tuning_text()) << "build again";
}

TEST(ShippedTuningTable, IsWhatThePlanUses) {
  for (const TunedPlan& entry : shipped_tuning_table().entries()) {
    const Problem problem{
        .rows = entry.rows, .k = entry.k, .m = entry.m, .encoding = entry.encoding};
    const KernelPlan plan = plan_kernel(problem, {.sm_count = entry.sm_count});
    EXPECT_EQ(instance_name(plan.instance), instance_name(entry.instance));
  }
}

TEST(TuningText, ReadsEntriesWithTheirSource) {
  const TuningText text =
      read(head + line("132,split12,2304,8192,1") + line("132,split12,2304,8192,16") +
           "# NVIDIA H200, later\n#second line\n" + line("132,raw32,256,8192,1", raw32_name) +
           line("144,split12,64,128,1"));
  ASSERT_TRUE(text.errors.empty()) << text.errors[0];
  ASSERT_EQ(text.entries.size(), 4U);
  const TunedPlan& first = text.entries[0];
  EXPECT_EQ(first.sm_count, 132);
  EXPECT_EQ(first.encoding, Encoding::split12);
  EXPECT_EQ(first.rows, 2304);
  EXPECT_EQ(first.k, 8192);
  EXPECT_EQ(first.m, 1);
  EXPECT_EQ(first.measured_us, 9.25);
  EXPECT_EQ(instance_name(first.instance), split12_name);
  EXPECT_EQ(first.source, "NVIDIA H200, a test");
  EXPECT_EQ(text.entries[1].source, first.source);
  EXPECT_EQ(text.entries[2].source, "NVIDIA H200, later\nsecond line");
  EXPECT_EQ(text.entries[3].source, text.entries[2].source);
}

TEST(TuningText, AnEmptyTableHasItsColumnsAllTheSame) {
  EXPECT_TRUE(read("# nothing yet\n" + columns_line).errors.empty());
  EXPECT_EQ(complaint(""),
            "t.csv line 0: no line names the columns: it must say " + std::string(tuning_columns));
  EXPECT_EQ(complaint("# head\nsms,n,k\n"),
            "t.csv line 2: after the comments at the head comes the line " +
                std::string(tuning_columns) + ", not 'sms,n,k'");
}

TEST(TuningText, NamesEveryBadValue) {
  const auto say = [](const std::string& what) { return "t.csv line 4: " + what; };
  const std::string range = ": it must be a number from 1 to ";
  EXPECT_EQ(complaint(head + "132,split12,64\n"),
            say("'132,split12,64' has 3 field(s), not the 7 of " + std::string(tuning_columns)));
  EXPECT_EQ(complaint(head + "\n"),
            say("'' has 1 field(s), not the 7 of " + std::string(tuning_columns)));
  EXPECT_EQ(complaint(head + line("0,split12,64,64,1")), say("sms is '0'" + range + "1024"));
  EXPECT_EQ(complaint(head + line("132,split13,64,64,1")),
            say("encoding is 'split13': it must be split12, raw16 or raw32"));
  EXPECT_EQ(complaint(head + line("132,split12,64x,64,1")),
            say("n is '64x'" + range + "2147483647"));
  EXPECT_EQ(complaint(head + line("132,split12,64,2147483648,1")),
            say("k is '2147483648'" + range + "2147483647"));
  EXPECT_EQ(complaint(head + line("132,split12,64,64, 1")),
            say("m is ' 1'" + range + "2147483647"));
  for (const char* us : {"0", "-1", "nan", "inf", "fast", ""}) {
    EXPECT_EQ(complaint(head + "132,split12,64,64,1," + us + "," + split12_name + "\n"),
              say(std::string("measured_us is '") + us + "': it must be a number above 0"));
  }
  EXPECT_EQ(complaint(head + line("132,split12,64,64,1", "stream/fast")),
            say("no instance of the kernel table is called 'stream/fast'; measure the shape again "
                "(slimgemm tune --table) or remove the line"));
  EXPECT_EQ(complaint(head + line("132,raw16,64,64,1")),
            say(split12_name + " can't serve this shape in raw16"));
  EXPECT_EQ(complaint(columns_line + line("132,split12,64,64,1")),
            "t.csv line 2: no comment above it says where it comes from (device, date, commit)");
}

TEST(TuningText, AClusterNeedsEnoughKTiles) {
  for (const Instance& instance : instances_of(Encoding::raw32)) {
    if (instance.stream().cluster == 1) continue;
    const std::string name = instance_name(instance);
    EXPECT_EQ(complaint(head + line("132,raw32,64,64,1", name)),
              "t.csv line 4: " + name + " can't serve this shape in raw32");
  }
}

TEST(TuningText, LinesAreSortedAndUnique) {
  const std::string first = line("132,split12,64,128,16");
  EXPECT_EQ(complaint(head + first + first), "t.csv line 5: the shape and m of line 4 again");
  for (const char* before : {"131,split12,64,128,16", "132,split12,63,128,16",
                             "132,split12,64,127,16", "132,split12,64,128,15"}) {
    EXPECT_EQ(complaint(head + first + line(before)),
              "t.csv line 5: must come before line 4: lines are sorted by sms, encoding (split12, "
              "raw16, raw32), n, k, m");
  }
  EXPECT_EQ(complaint(head + line("132,raw32,1,8192,1", first_name(Encoding::raw32)) +
                      line("132,raw16,99,8192,1", first_name(Encoding::raw16))),
            "t.csv line 5: must come before line 4: lines are sorted by sms, encoding (split12, "
            "raw16, raw32), n, k, m");
}

TEST(TuningText, ReportsAllErrorsAndKeepsTheGoodLines) {
  const TuningText text = read(head + line("0,split12,64,64,1") + line("132,split12,64,64,1") +
                               line("132,split12,64,64,2", "gone") + line("132,split12,64,64,x") +
                               line("132,split12,64,64,4"));
  ASSERT_EQ(text.errors.size(), 2U);
  EXPECT_NE(text.errors[0].find("line 4"), std::string::npos);
  EXPECT_NE(text.errors[1].find("line 7"), std::string::npos);
  ASSERT_EQ(text.unknown_instances.size(), 1U);
  EXPECT_NE(text.unknown_instances[0].find("line 6"), std::string::npos);
  ASSERT_EQ(text.entries.size(), 2U);
  EXPECT_EQ(text.entries[1].m, 4);
}

TunedPlan entry(int sm_count, std::int64_t rows, std::int64_t m,
                Encoding encoding = Encoding::split12) {
  TunedPlan e;
  e.sm_count = sm_count;
  e.encoding = encoding;
  e.rows = rows;
  e.k = 8192;
  e.m = m;
  e.measured_us = static_cast<double>(m);
  e.instance = instances_of(encoding).front();
  return e;
}

TEST(TuningTable, AnEntrySpeaksForTheTokensUpToIt) {
  const TuningTable table({entry(132, 1024, 4), entry(132, 2304, 8), entry(132, 2304, 16),
                           entry(132, 2304, 48), entry(132, 4096, 1)});
  const auto found = [&](std::int64_t m) -> std::int64_t {
    const TunedPlan* e = table.find({.rows = 2304, .k = 8192, .m = m}, h200_facts);
    return e == nullptr ? 0 : e->m;
  };
  for (const std::int64_t m : {1, 2, 4}) EXPECT_EQ(found(m), 0) << m;  // not above half of 8
  for (const std::int64_t m : {5, 7, 8}) EXPECT_EQ(found(m), 8) << m;
  for (const std::int64_t m : {9, 16}) EXPECT_EQ(found(m), 16) << m;
  for (const std::int64_t m : {17, 24, 48}) EXPECT_EQ(found(m), 48) << m;
  for (const std::int64_t m : {49, 4096}) EXPECT_EQ(found(m), 0) << m;
}

TEST(TuningTable, TheLowestEntryMayBeTheFirstOfTheTable) {
  const TuningTable table({entry(132, 64, 1), entry(132, 64, 3)});
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 1}, h200_facts)->m, 1);
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 2}, h200_facts)->m, 3);
  EXPECT_EQ(TuningTable().find({.rows = 64, .k = 8192, .m = 1}, h200_facts), nullptr);
}

TEST(TuningTable, TellsDevicesAndShapesApart) {
  const TuningTable table({entry(114, 64, 2), entry(132, 64, 1), entry(132, 64, 2),
                           entry(132, 64, 1, Encoding::raw32)});
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 1}, {.sm_count = 114}), nullptr);
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 2}, {.sm_count = 114})->sm_count, 114);
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 1}, {.sm_count = 78}), nullptr);
  EXPECT_EQ(table.find({.rows = 64, .k = 8128, .m = 1}, h200_facts), nullptr);
  EXPECT_EQ(table.find({.rows = 48, .k = 8192, .m = 1}, h200_facts), nullptr);
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 1, .encoding = Encoding::raw16}, h200_facts),
            nullptr);
  EXPECT_EQ(table.find({.rows = 64, .k = 8192, .m = 1, .encoding = Encoding::raw32}, h200_facts)
                ->encoding,
            Encoding::raw32);
}

TEST(TuningTable, RefusesEntriesOutOfOrder) {
  EXPECT_THROW(TuningTable({entry(132, 64, 2), entry(132, 64, 1)}), Error);
  EXPECT_THROW(TuningTable({entry(132, 64, 2), entry(132, 64, 2)}), Error);
}

TEST(TunedPlan, TakesTheEntrysInstanceAndSaysSo) {
  const Problem at_16{.rows = 2304, .k = 8192, .m = 16};
  TunedPlan tuned = entry(132, 2304, 16);
  tuned.instance = slowest_by_model(at_16);
  tuned.measured_us = 9.876;
  const TuningTable table({tuned});
  const KernelPlan plan = plan_kernel(at_16, h200_facts, table);
  EXPECT_EQ(plan.instance, tuned.instance);
  EXPECT_NE(plan.instance, plan_by_model(at_16, h200_facts).instance);
  EXPECT_TRUE(plan.reason.starts_with("tuned, measured 9.88 us: ")) << plan.reason;
  const KernelPlan given = plan_instance(tuned.instance, at_16, h200_facts);
  EXPECT_EQ(plan.grid_x, given.grid_x);
  EXPECT_EQ(plan.grid_y, given.grid_y);
  EXPECT_EQ(plan.smem_bytes, given.smem_bytes);
  EXPECT_EQ(plan.x_rows, given.x_rows);
  EXPECT_EQ(plan.estimated_us, given.estimated_us);

  Problem fewer = at_16;
  fewer.m = 11;
  const KernelPlan shared = plan_kernel(fewer, h200_facts, table);
  EXPECT_EQ(shared.instance, tuned.instance);
  EXPECT_EQ(shared.x_rows, std::min(11, given.x_rows));
  EXPECT_TRUE(shared.reason.starts_with("tuned, measured 9.88 us at m=16: ")) << shared.reason;
}

TEST(TunedPlan, TheModelDecidesWhereTheTableCannot) {
  const Problem many{.rows = 4096, .k = 8192, .m = 128};
  TunedPlan tuned = entry(132, 4096, 128);
  tuned.instance = {Family::tile, 0};
  ASSERT_EQ(tuned.instance.tile().encoding, Encoding::split12);
  const TuningTable table({tuned});
  EXPECT_EQ(plan_kernel(many, h200_facts, table).instance, tuned.instance);

  const auto by_model = [&](Problem problem) {
    const KernelPlan plan = plan_kernel(problem, h200_facts, table);
    EXPECT_EQ(plan.instance, plan_by_model(problem, h200_facts).instance);
    EXPECT_TRUE(plan.reason.starts_with("estimated ")) << plan.reason;
  };
  Problem other = many;
  other.x_aligned = false;
  by_model(other);
  other = many;
  other.m = 129;
  by_model(other);
  other = many;
  other.rows = 4080;
  by_model(other);
}

}  // namespace
}  // namespace slimgemm::plan
