// SPDX-License-Identifier: Apache-2.0
#include "judge/safetensors.hpp"

#include "support/bf16.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace slimgemm::judge {
namespace {

LayerTable tiny_layers() {
  LayerTable table = layers();
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i].n = 2 + static_cast<std::int64_t>(i);
    table[i].k = 3;
  }
  return table;
}

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
#if !SLIMGEMM_HAVE_JSON
    GTEST_SKIP() << "this build has no JSON";
#endif
    path_ = std::filesystem::temp_directory_path() /
            (std::string("slimgemm_") +
             testing::UnitTest::GetInstance()->current_test_info()->name() + ".safetensors");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::string& header, const std::string& data, std::uint64_t length) {
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), 8);
    file << header << data;
  }
  void write(const std::string& header, const std::string& data) {
    write(header, data, header.size());
  }

  // Adds a tensor of BF16 1, 2, 3, ... or of FP32.
  void add(const std::string& name, std::int64_t n, std::int64_t k, bool f32 = false) {
    const std::size_t begin = data_.size();
    for (std::int64_t i = 0; i < n * k; ++i) {
      const auto value = static_cast<float>(i + 1);
      const std::uint16_t bits = float_to_bf16(value);
      data_.append(
          f32 ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&bits),
          f32 ? 4 : 2);
    }
    if (!header_.empty()) header_ += ',';
    header_ += "\"" + name + "\":{\"dtype\":\"" + (f32 ? "F32" : "BF16") + "\",\"shape\":[" +
               std::to_string(n) + "," + std::to_string(k) + "],\"data_offsets\":[" +
               std::to_string(begin) + "," + std::to_string(data_.size()) + "]}";
  }
  void add_all(const std::string& suffix = "", bool f32_router = true) {
    for (const LayerInfo& layer : tiny_layers()) {
      add(std::string(layer.name) + suffix, layer.n, layer.k,
          layer.layer == Layer::router && f32_router);
    }
  }
  std::string header() const { return "{" + header_ + "}"; }

  void expect_error(ErrorCode code, const std::string& part) {
    try {
      load_safetensors(path_, tiny_layers());
      FAIL() << "accepted, but: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
  void expect_corrupt(const std::string& part) { expect_error(ErrorCode::corrupt_data, part); }

  std::string path_;
  std::string header_;
  std::string data_;
};

TEST_F(Safetensors, TakesTheFiveMatricesByName) {
  header_ = R"("__metadata__":{"format":"pt"})";
  add("something.else", 1, 1);
  add_all();
  write(header(), data_);
  const Weights weights = load_safetensors(path_, tiny_layers());
  for (std::size_t i = 0; i < 4; ++i) {
    ASSERT_EQ(weights.matrices[i].bf16.size(), (2 + i) * 3);
    EXPECT_EQ(bf16_to_float(weights.matrices[i].bf16[4]), 5.0F);
  }
  ASSERT_EQ(weights.matrices[4].f32.size(), 18U);
  EXPECT_EQ(weights.matrices[4].f32[17], 18.0F);
}

TEST_F(Safetensors, TakesWeightSuffixesAndABf16Router) {
  add_all(".weight", false);
  write(header(), data_);
  const Weights weights = load_safetensors(path_, tiny_layers());
  EXPECT_TRUE(weights.matrices[4].bf16.empty());
  ASSERT_EQ(weights.matrices[4].f32.size(), 18U);
  EXPECT_EQ(weights.matrices[4].f32[17], 18.0F);
}

TEST_F(Safetensors, NamesWhatDoesNotFit) {
  add("qkv_gate", 2, 3);
  write(header(), data_);
  expect_error(ErrorCode::invalid_argument, "tensor o is missing, and so is o.weight");
  header_.clear();
  data_.clear();
  add("qkv_gate", 3, 2);
  write(header(), data_);
  expect_error(ErrorCode::invalid_argument, "tensor qkv_gate has shape [3, 2]; it must be [2, 3]");
  header_.clear();
  data_.clear();
  add("qkv_gate", 2, 3, true);
  write(header(), data_);
  expect_error(ErrorCode::invalid_argument, "tensor qkv_gate is F32; it must be BF16");
}

TEST_F(Safetensors, RefusesNanWeights) {
  add_all();
  data_[2 * 4 + 1] = '\x7F';  // element 4 of qkv_gate: exponent 255
  data_[2 * 4] = '\xC0';
  write(header(), data_);
  expect_error(ErrorCode::invalid_argument, "qkv_gate holds nan at row 1, column 1");
}

TEST_F(Safetensors, RefusesUnsoundFiles) {
  add_all();
  write(header(), data_, 200'000'000);
  expect_corrupt("its header has 200000000 bytes, more than 100000000");
  write(header(), data_, 100'000);
  expect_corrupt("its header has 100000 bytes, but only");
  write(header(), data_ + "x");
  expect_corrupt("its tensors end at byte");
  write(header(), data_.substr(1));
  expect_corrupt("the file is cut short");
  write("{\"a\":", "");
  expect_corrupt("its header is not JSON");
  write("[]", "");
  expect_corrupt("its header is not a JSON object");
  { std::ofstream(path_, std::ios::binary) << "abc"; }
  expect_corrupt("it has 3 bytes");
}

TEST_F(Safetensors, RefusesUnsoundEntries) {
  write(R"({"a":{"dtype":"BF16","shape":[1]}})", "xx");
  expect_corrupt("tensor a has no data_offsets: it needs dtype, shape and data_offsets");
  write(R"({"a":{"dtype":"BF16","shape":[-1],"data_offsets":[0,2]}})", "xx");
  expect_corrupt("tensor a has -1 in shape: it must be a whole number");
  write(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[2,0]}})", "xx");
  expect_corrupt("tensor a lies at bytes 2 to 0");
  write(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
        R"("b":{"dtype":"BF16","shape":[1],"data_offsets":[3,5]}})",
        "xxxxx");
  expect_corrupt("tensor b lies at bytes 3 to 5, but the one before ends at 2");
  write(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]},)"
        R"("a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})",
        "xx");
  expect_corrupt("the tensor a appears twice");
  write(R"({"qkv_gate":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,2]}})", "xx");
  expect_corrupt("tensor qkv_gate takes 2 bytes, but its shape and dtype make 12");
}

TEST_F(Safetensors, AMissingFileIsNamed) {
  expect_error(ErrorCode::io_error, "cannot open " + path_);
}

}  // namespace
}  // namespace slimgemm::judge
