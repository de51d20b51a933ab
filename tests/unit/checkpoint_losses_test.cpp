// SPDX-License-Identifier: Apache-2.0
// What must never be lost: inputs, other people's files, tensors; whatever their names are.
#include "unit/checkpoint_test_support.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

namespace slimgemm::checkpoint::test {
namespace {

class CheckpointLosses : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    make_model("m", 1);
  }
  void make_model(const std::string& name, unsigned seed) {
    write_file(path(name + "/a.safetensors"),
               FileBuilder().add_bf16("a.weight", {64, 192}, seed).text());
    write_file(path(name + "/b.safetensors"),
               FileBuilder().add_bf16("b.weight", {64, 192}, seed + 1).text());
    write_file(path(name + "/config.json"), "{}");
  }
  void interrupt(const std::string& in) {
    struct Stop {};
    Meter stopping([](const std::string& stage, std::uint64_t, std::uint64_t) {
      if (stage == "b.safetensors") throw Stop{};
    });
    EXPECT_THROW(pack_checkpoint(path(in), path("p"), {}, stopping), Stop);
  }
};

TEST_F(CheckpointLosses, TheInputMayBeNamedLikeAWorkingFile) {
  fs::copy_file(path("m/a.safetensors"), path("x.partial"));
  const std::string before = read_file(path("x.partial"));
  expect_error(ErrorCode::io_error, "it exists", [&] { pack("x.partial", "x"); });
  EXPECT_EQ(read_file(path("x.partial")), before);
  pack("m/a.safetensors", "z.partial");
  const std::string packed = read_file(path("z.partial"));
  expect_error(ErrorCode::io_error, "it exists", [&] { unpack("z.partial", "z"); });
  EXPECT_EQ(read_file(path("z.partial")), packed);
  make_model("d.partial", 1);
  write_file(path("d.partial/slimgemm.partial.json"), "{}");
  expect_error(ErrorCode::invalid_argument, "slimgemm.partial.json",
               [&] { pack("d.partial", "d"); });
  EXPECT_TRUE(fs::exists(path("d.partial/a.safetensors")));
}

TEST_F(CheckpointLosses, LinksInTheWayAreNotFollowed) {
  write_file(path("precious"), "x");
  fs::create_symlink(path("precious"), path("y.partial"));
  expect_error(ErrorCode::io_error, "it exists", [&] { pack("m/a.safetensors", "y"); });
  expect_error(ErrorCode::invalid_argument, "no interrupted run's", [&] { pack("m", "y"); });
  EXPECT_EQ(read_file(path("precious")), "x");
  interrupt("m");
  write_file(path("folder/gold"), "x");
  fs::create_directory_symlink(path("folder"), path("p.partial/link"));
  EXPECT_EQ(pack("m", "p").files_reused, 1U);
  EXPECT_EQ(read_file(path("folder/gold")), "x");
  EXPECT_EQ(joined_problems("p", "m"), "");
}

TEST_F(CheckpointLosses, ADirectoryOfOthersIsLeftAlone) {
  write_file(path("p.partial/slimgemm.partial.json"), "{}");
  write_file(path("p.partial/mine"), "x");
  expect_error(ErrorCode::invalid_argument, "no interrupted run's", [&] { pack("m", "p"); });
  EXPECT_TRUE(fs::exists(path("p.partial/mine")));
}

TEST_F(CheckpointLosses, AnotherModelIsNotResumed) {
  interrupt("m");
  make_model("other", 5);
  for (const char* name : {"a.safetensors", "b.safetensors"}) {
    fs::last_write_time(path("other/" + std::string(name)),
                        fs::last_write_time(path("m/" + std::string(name))));
  }
  EXPECT_EQ(pack("other", "p").files_reused, 0U);
  EXPECT_EQ(joined_problems("p", "other"), "");
}

TEST_F(CheckpointLosses, AReplacedShardIsNotReused) {
  interrupt("m");
  const auto time = fs::last_write_time(path("m/a.safetensors"));
  write_file(path("new"), FileBuilder().add_bf16("a.weight", {64, 192}, 9).text());
  fs::rename(path("new"), path("m/a.safetensors"));
  fs::last_write_time(path("m/a.safetensors"), time);
  EXPECT_EQ(pack("m", "p").files_reused, 0U);
  EXPECT_EQ(joined_problems("p", "m"), "");
}

TEST_F(CheckpointLosses, NamesThatCollideAreRefused) {
  write_file(path("m/b.safetensors"), FileBuilder().add("a.weight_packed", "U8", {1}, "x").text());
  expect_error(ErrorCode::invalid_argument, "a.weight_packed", [&] { pack("m", "p"); });
  make_model("m", 1);
  for (const char* name : {"config.json.new", "slimgemm.json.new", "slimgemm.partial.json"}) {
    write_file(path("m/" + std::string(name)), "x");
    expect_error(ErrorCode::invalid_argument, name, [&] { pack("m", "p"); });
    fs::remove(path("m/" + std::string(name)));
  }
  write_file(path("m/\xFF"), "x");
  expect_error(ErrorCode::invalid_argument, "not UTF-8", [&] { pack("m", "p"); });
  EXPECT_FALSE(fs::exists(path("p.partial")));
}

TEST_F(CheckpointLosses, AConfigThatCannotBeMarkedIsRefused) {
  for (const std::string& text : {std::string("{\"limit\": Infinity}"), std::string("{\"a\": ")}) {
    write_file(path("m/config.json"), text);
    expect_error(ErrorCode::corrupt_data, "is not JSON", [&] { pack("m", "p"); });
  }
  write_file(path("m/config.json"),
             "{\"a\": " + std::string(5000, '[') + std::string(5000, ']') + "}");
  expect_error(ErrorCode::corrupt_data, "levels deep", [&] { pack("m", "p"); });
}

}  // namespace
}  // namespace slimgemm::checkpoint::test
