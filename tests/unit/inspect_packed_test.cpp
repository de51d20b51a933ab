// SPDX-License-Identifier: Apache-2.0
// What inspect and fit say before packing is what they find after it, and what pack then writes.
#include "checkpoint/checkpoint.hpp"
#include "inspect/fit.hpp"
#include "inspect/inspection_report.hpp"

#include "inspect_test_support.hpp"

#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON && SLIMGEMM_HAVE_XXHASH

#include <bit>
#include <random>

namespace slimgemm::inspect {
namespace {

TestTensor normal_tensor(const std::string& name, const std::vector<std::int64_t>& shape,
                         float deviation, double outlier_share, unsigned seed) {
  TestTensor tensor = bf16_tensor(name, shape, 0);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::bernoulli_distribution is_outlier(outlier_share);
  std::vector<std::uint16_t> values(tensor.bytes.size() / 2);
  for (std::uint16_t& value : values) {
    const float drawn = is_outlier(random) ? 1e5F : normal(random);
    value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(drawn) >> 16);
  }
  tensor.bytes = bytes_of(values);
  return tensor;
}

class PackedInspectionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_.at("model"));
    write_safetensors(folder_.at("model/a.safetensors"),
                      {normal_tensor("model.embed_tokens.weight", {100, 64}, 1, 0, 1),
                       normal_tensor("model.layers.0.q_proj.weight", {200, 300}, 0.02F, 0, 2),
                       normal_tensor("model.layers.0.norm.weight", {64}, 1, 0, 3)});
    write_safetensors(folder_.at("model/b.safetensors"),
                      {normal_tensor("model.layers.1.experts.w", {3, 130, 128}, 0.01F, 5e-4, 4),
                       normal_tensor("model.layers.1.o_proj.weight", {64, 256}, 0.02F, 0.3, 5)});
    write_text(folder_.at("model/model.safetensors.index.json"),
               R"({"metadata": {"total_size": 1}, "weight_map": {
                   "model.embed_tokens.weight": "a.safetensors",
                   "model.layers.0.q_proj.weight": "a.safetensors",
                   "model.layers.0.norm.weight": "a.safetensors",
                   "model.layers.1.experts.w": "b.safetensors",
                   "model.layers.1.o_proj.weight": "b.safetensors"}})");
    write_text(folder_.at("model/config.json"),
               R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 2,
                   "head_dim": 64})");
    checkpoint::Meter meter({});
    checkpoint::pack_checkpoint(folder_.at("model"), folder_.at("packed"), {}, meter);
  }

  TestFolder folder_;
};

InspectOptions on_h200() {
  InspectOptions options;
  options.gpu = lab::named_gpu("h200");
  return options;
}

TEST_F(PackedInspectionTest, SaysTheSameBeforeAndAfter) {
  const Model plain(folder_.at("model"));
  const Model packed(folder_.at("packed"));
  EXPECT_TRUE(packed.is_packed());
  EXPECT_FALSE(plain.is_packed());
  EXPECT_EQ(packed.original_bytes(), plain.original_bytes());
  EXPECT_LT(packed.stored_bytes(), plain.stored_bytes());
  const Inspection before = inspect(plain, on_h200());
  const Inspection after = inspect(packed, on_h200());
  ASSERT_EQ(before.measured.size(), 3U);
  ASSERT_EQ(after.measured.size(), 3U);
  for (const MeasuredTensor& measured : before.measured) {
    const std::string& name = measured.tensor->original.name;
    const ModelTensor* in_packed = packed.find(name);
    ASSERT_NE(in_packed, nullptr) << name;
    EXPECT_EQ(in_packed->stored.size_bytes(), measured.exponents.packed_bytes)
        << name << ": pack wrote another size than inspect said";
    for (const MeasuredTensor& other : after.measured) {
      if (other.tensor->original.name != name) continue;
      EXPECT_EQ(other.exponents.histogram, measured.exponents.histogram);
      EXPECT_EQ(other.exponents.relative, measured.exponents.relative);
      EXPECT_EQ(other.exponents.exceptions, measured.exponents.exceptions);
      EXPECT_EQ(other.exponents.raw16_matrices, measured.exponents.raw16_matrices);
      EXPECT_EQ(other.exponents.matrices, measured.exponents.matrices);
      EXPECT_EQ(other.exponents.packed_bytes, measured.exponents.packed_bytes);
    }
  }
  EXPECT_EQ(before.total.raw16_matrices, 1U) << "a third of o_proj lies far out";
  EXPECT_GT(before.total.exceptions, 0U);
  EXPECT_EQ(before.bytes_after, packed.stored_bytes());
  EXPECT_EQ(after.bytes_after, packed.stored_bytes());
  EXPECT_EQ(after.bytes_before, before.bytes_before);
  EXPECT_DOUBLE_EQ(after.token.us_after, before.token.us_after);
  EXPECT_DOUBLE_EQ(after.token.us_before, before.token.us_before);
  EXPECT_EQ(after.others.size(), before.others.size());
}

TEST_F(PackedInspectionTest, OneTensorByEitherName) {
  const Model packed(folder_.at("packed"));
  InspectOptions options = on_h200();
  options.tensor = "model.layers.1.experts.w";
  const Inspection by_name = inspect(packed, options);
  options.tensor = packed.find(options.tensor)->stored.name;
  EXPECT_EQ(inspect(packed, options).total.histogram, by_name.total.histogram);
  EXPECT_EQ(by_name.total.weights, 3U * 130 * 128);
  options.tensor = "model.layers.0.norm.weight";
  EXPECT_EQ(inspect(packed, options).total.weights, 64U);
}

TEST_F(PackedInspectionTest, FitIsExactWherePacked) {
  FitQuery query;
  query.gpu = "GPU";
  query.memory_bytes = 1'000'000;
  const Model packed(folder_.at("packed"));
  const FitResult result = fit(packed, query);
  EXPECT_TRUE(result.is_packed);
  EXPECT_GT(result.packed.weight_bytes, packed.stored_bytes()) << "aligned on a GPU";
  EXPECT_LT(result.packed.weight_bytes, packed.stored_bytes() * 1.2);
  EXPECT_EQ(result.unpacked.weight_bytes, Model(folder_.at("model")).stored_bytes());
  EXPECT_EQ(result.kv->bytes_per_token, 2U * 2 * 2 * 64 * 2) << "config.json is as it was";
}

TEST_F(PackedInspectionTest, DamagedWeightsAreNamed) {
  const std::string path = folder_.at("packed/a.safetensors");
  const Model packed(folder_.at("packed"));
  const ModelTensor* tensor = packed.find("model.layers.0.q_proj.weight");
  const std::uint64_t at =
      packed.file(tensor->file).header().data_begin() + tensor->stored.begin + 5000;
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.put('\x55');
  file.put('\xAA');
  file.close();
  try {
    static_cast<void>(inspect(packed, on_h200()));
    FAIL() << "the damage was not seen";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    EXPECT_NE(std::string(error.what()).find("model.layers.0.q_proj.weight"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace slimgemm::inspect

#endif
