// SPDX-License-Identifier: Apache-2.0
#include "judge/shape_file.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <utility>

namespace slimgemm::judge {
namespace {

class ShapeFile : public testing::Test {
 protected:
  void SetUp() override {
#if !SLIMGEMM_HAVE_JSON
    GTEST_SKIP() << "this build has no JSON";
#endif
  }

  static std::string refusal(const std::string& text) {
    try {
      parse_shape_file(text, "a.json");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.what();
    }
    return "accepted";
  }
  static void expect_refused(const std::string& text, const std::string& part) {
    const std::string message = refusal(text);
    EXPECT_EQ(message.find("a.json: "), 0U) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
    EXPECT_LT(message.size(), 500U) << message;
  }
  // A file of one layer with these fields after its name.
  static std::string with_layer(const std::string& fields) {
    return R"({"schema":"slimgemm-shapes-1","layers":[{"name":"a",)" + fields + "}]}";
  }
};

TEST_F(ShapeFile, GivesLayersAndTheirCases) {
  const Problem problem = parse_shape_file(R"({"schema": "slimgemm-shapes-1", "description": "d",
    "tokens": [2, 3], "layers": [
    {"name": "a.b-c_1", "n": 48, "k": 128, "dtype": "bf16"},
    {"name": "r", "n": 16, "k": 64, "dtype": "f32", "role": "scores", "models": ["x", "y"],
     "tokens": [1, 8192]}]})",
                                           "a.json");
  EXPECT_EQ(problem.shape_file, "a.json");
  ASSERT_EQ(problem.layers.size(), 2U);
  EXPECT_EQ(problem.layers[0].name, "a.b-c_1");
  EXPECT_EQ(problem.layers[0].role, "");
  EXPECT_EQ(problem.layers[1].role, "scores (x, y)");
  EXPECT_EQ(problem.layers[1].layer, Layer{1});
  EXPECT_EQ(problem.layers[1].dtype, DType::f32);
  const std::vector<Case> expected = {
      {Layer{0}, 2, true}, {Layer{0}, 3, true}, {Layer{1}, 1, true}, {Layer{1}, 8192, true}};
  EXPECT_EQ(problem.cases, expected);
  const Shape shape = resolve(problem.cases[3], problem.layers);
  EXPECT_EQ(shape.n, 16) << "no slices";
  EXPECT_EQ(shape.k, 64);
}

TEST_F(ShapeFile, WithoutTokensTheDefaultOnesAreTaken) {
  const Problem problem = parse_shape_file(with_layer(R"("n":8,"k":8,"dtype":"bf16")"), "a.json");
  std::vector<std::int64_t> tokens;
  for (const Case& c : problem.cases) tokens.push_back(c.m);
  EXPECT_EQ(tokens, (std::vector<std::int64_t>{1, 4, 8, 16, 32}));
}

TEST_F(ShapeFile, RefusesWhatIsNoShapeFile) {
  expect_refused("", "not JSON");
  expect_refused("[]", "the file is an array");
  expect_refused("{\"schema\": \"" + std::string(5000, 'x'), "not JSON");
  expect_refused("{}", "the file has no field \"schema\"");
  expect_refused(R"({"schema": "slimgemm-shapes-2", "layers": []})", "this version reads");
  expect_refused(R"({"schema": 1, "layers": []})", "schema of the file is 1; allowed: a text");
  expect_refused(R"({"schema": "slimgemm-shapes-1"})", "no field \"layers\"");
  expect_refused(R"({"schema": "slimgemm-shapes-1", "layers": []})", "layers is a list of 0");
  expect_refused(R"({"schema": "slimgemm-shapes-1", "layers": {}})", "layers is an object");
  expect_refused(R"({"schema": "slimgemm-shapes-1", "layers": [1]})", "layers[0] is 1");
  expect_refused(R"({"schema": "slimgemm-shapes-1", "token": [1]})",
                 "the file has a field \"token\"");
  expect_refused(std::string(shape_file_bytes_max + 1, ' '), "it has 1048577 bytes");
  expect_refused(std::string(shape_file_bytes_max, '['), "not JSON");
  expect_refused(R"({"schema": "slimgemm-shapes-1", "schema": "slimgemm-shapes-1"})",
                 "the key \"schema\" appears twice");
  expect_refused("{\"schema\": \"\xFF\"}", "not JSON");
}

TEST_F(ShapeFile, RefusesUnsoundLayers) {
  expect_refused(with_layer(R"("n":0,"k":8,"dtype":"bf16")"), "n of layers[0] (a) is 0; allowed");
  expect_refused(with_layer(R"("n":8,"k":-8,"dtype":"bf16")"), "k of layers[0] (a) is -8");
  expect_refused(with_layer(R"("n":8.5,"k":8,"dtype":"bf16")"), "n of layers[0] (a) is 8.5");
  expect_refused(with_layer(R"("n":"8","k":8,"dtype":"bf16")"), "n of layers[0] (a) is \"8\"");
  expect_refused(with_layer(R"("n":1e30,"k":8,"dtype":"bf16")"), "n of layers[0] (a) is 1e+30");
  expect_refused(with_layer(R"("n":18446744073709551615,"k":8,"dtype":"bf16")"), "from 1 to");
  expect_refused(with_layer(R"("n":2147483647,"k":2147483647,"dtype":"f32")"),
                 "18446744056529682436 bytes; allowed: at most 4294967296");
  expect_refused(with_layer(R"("n":65536,"k":32769,"dtype":"bf16")"), "allowed: at most");
  expect_refused(with_layer(R"("n":8,"k":8,"dtype":"fp8")"), "is \"fp8\"; allowed: bf16, f32");
  expect_refused(with_layer(R"("n":8,"k":8)"), "layers[0] (a) has no field \"dtype\"");
  expect_refused(with_layer(R"("n":8,"n":9,"k":8,"dtype":"bf16")"), "the key \"n\" appears twice");
  expect_refused(with_layer(R"("n":8,"k":8,"dtype":"bf16","m":[1])"), "has a field \"m\"");
  expect_refused(with_layer(R"("n":8,"k":8,"dtype":"bf16","role":[])"), "role of layers[0] (a)");
  expect_refused(with_layer(R"("n":8,"k":8,"dtype":"bf16","models":"x")"), "allowed: a list of");
  expect_refused(with_layer(R"("n":8,"k":8,"dtype":"bf16","models":[""])"), "a model of layers[0]");
}

TEST_F(ShapeFile, RefusesUnsoundTokenCounts) {
  const auto with_tokens = [](const std::string& tokens) {
    return with_layer(R"("n":8,"k":8,"dtype":"bf16","tokens":)" + tokens);
  };
  expect_refused(with_tokens("[]"), "tokens of layers[0] (a) is empty");
  expect_refused(with_tokens("1"), "tokens of layers[0] (a) is 1; allowed: a list");
  expect_refused(with_tokens("[0]"), "a token count of layers[0] (a) is 0");
  expect_refused(with_tokens("[8193]"), "is 8193; allowed: a whole number from 1 to 8192");
  expect_refused(with_tokens("[1, 8, 1]"), "has 1 twice");
}

TEST_F(ShapeFile, RefusesUnsoundNames) {
  const auto named = [](const std::string& first, const std::string& second) {
    return R"({"schema":"slimgemm-shapes-1","layers":[{"name":")" + first +
           R"(","n":8,"k":8,"dtype":"bf16"},{"name":")" + second +
           R"(","n":8,"k":8,"dtype":"bf16"}]})";
  };
  expect_refused(named("a", "a"), "layers[1] is the second layer with the name \"a\"");
  expect_refused(named("a", "a,b"), "name of layers[1] is \"a,b\"; allowed: 1 to 64 of letters");
  expect_refused(named("a", ""), "name of layers[1] is \"\"");
  expect_refused(named("a", "<b>"), "allowed: 1 to 64 of letters");
  expect_refused(named("a", std::string(65, 'x')), "allowed: 1 to 64 of letters");
  EXPECT_EQ(refusal(named("a", std::string(64, 'x'))), "accepted");
}

TEST_F(ShapeFile, FilesThatCannotBeReadAreNamed) {
  for (const std::string path : {"no/such/file.json", "/"}) {
    try {
      read_shape_file(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io_error);
      EXPECT_EQ(std::string(error.what()), "cannot read " + path);
    }
  }
  const auto path = std::filesystem::temp_directory_path() / "slimgemm_shape_file_test.json";
  std::ofstream(path) << std::string(2 * shape_file_bytes_max, ' ');
  try {
    read_shape_file(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("allowed: at most 1048576"), std::string::npos);
  }
  std::filesystem::remove(path);
}

TEST_F(ShapeFile, TheServedShapesAreSound) {
  const Problem problem = read_shape_file(std::string(SLIMGEMM_SOURCE_DIR) + "/shapes/served.json");
  std::set<std::pair<std::int64_t, std::int64_t>> sizes;
  for (const LayerInfo& layer : problem.layers) {
    EXPECT_TRUE(sizes.insert({layer.n, layer.k}).second) << layer.name << " is there twice";
    EXPECT_EQ(layer.dtype, DType::bf16);
    EXPECT_LE(layer.n * layer.k * 2, 500'000'000) << layer.name;
    EXPECT_FALSE(layer.role.empty());
  }
  EXPECT_GE(sizes.size(), 24U);
  EXPECT_EQ(problem.cases.size(), 8 * problem.layers.size());
  // Three that a reader can check by hand: Llama 3 8B qkv and down, Llama 3 70B gate_up at TP 4.
  EXPECT_TRUE(sizes.contains({(32 + 2 * 8) * 128, 4096}));
  EXPECT_TRUE(sizes.contains({4096, 14336}));
  EXPECT_TRUE(sizes.contains({2 * 28672 / 4, 8192}));
}

}  // namespace
}  // namespace slimgemm::judge
