// SPDX-License-Identifier: Apache-2.0
// Contenders in shared libraries, sound and not.
#include "judge/report.hpp"
#include "tiny_problem.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

namespace slimgemm::judge::test {
namespace {

std::string library(const std::string& flaw) {
  return std::string(CONTENDER_FOLDER) + "/libcontender_" + flaw + ".so";
}

RunResult judge(const std::string& flaw) {
  RunOptions options = tiny_options();
  options.problem.cases = {{Layer::o, 16, true}, {Layer::router, 9, false}};
  const auto executor = tiny_executor();
  const auto contender = load_contender(library(flaw), -1);
  return run_judge(*executor, *contender, {}, generate_weights(options.problem.layers, 3), options);
}

void expect_refused(const std::string& path, const std::string& part) {
  try {
    load_contender(path, -1);
    FAIL() << path << " was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
  }
}

TEST(LoadedContender, ASoundOnePasses) {
  const RunResult result = judge("none");
  EXPECT_EQ(result.contender.name, "loaded");
  EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
  EXPECT_EQ(result.cases[0].weight_bytes, 80 * 64 * 2);
}

TEST(LoadedContender, AWrongOneIsCaught) {
  const auto failures = judge("wrong_row").contender_failures();
  ASSERT_FALSE(failures.empty());
  for (const Failure& failure : failures) {
    EXPECT_EQ(failure.layer, "o");
    EXPECT_EQ(failure.row, 0);
    EXPECT_EQ(failure.column, 0);
    EXPECT_EQ(failure.got, 512);
  }
}

TEST(LoadedContender, EveryFlawOfTheLibraryIsNamed) {
  expect_refused("no/such/library.so", "no such file");
  expect_refused(std::string(SLIMGEMM_SOURCE_DIR) + "/LICENSE", "cannot be loaded");
  expect_refused(library("no_entry"), "does not export slimgemm_contender_get()");
  expect_refused(library("null_table"), "returned NULL");
  expect_refused(library("wrong_abi"), "has ABI 99, this judge needs 1");
  expect_refused(library("no_name"), "its name is NULL");
  expect_refused(library("no_run"), "its run is NULL");
}

TEST(LoadedContender, ErrorsOfItsCallsAreNamed) {
  const RunResult prepare = judge("prepare_error");
  ASSERT_EQ(prepare.contender.failures.size(), 1U);
  EXPECT_EQ(prepare.contender.failures[0].to_string(),
            "prepare failed: loaded: prepare returned 7: weights of 48 rows are too many");

  const auto run = judge("run_error").contender_failures();
  ASSERT_EQ(run.size(), 2U);
  EXPECT_EQ(run[0].to_string(), "o m=16: call failed: loaded: run returned -3: no message");

  const auto bytes = judge("negative_bytes").contender_failures();
  ASSERT_EQ(bytes.size(), 2U);
  EXPECT_EQ(bytes[0].to_string(),
            "o m=16: call failed: loaded: weight_bytes(o, 16) returned -1; it must be positive");
}

TEST(LoadedContender, WithoutWeightBytesTheDenseOnesAreAssumed) {
  const RunResult result = judge("no_bytes");
  EXPECT_EQ(verdict(result), Verdict::passed);
  EXPECT_EQ(result.cases[0].weight_bytes, 80 * 64 * 2);
  EXPECT_EQ(result.cases[1].weight_bytes, 32 * 128 * 4);
}

}  // namespace
}  // namespace slimgemm::judge::test
