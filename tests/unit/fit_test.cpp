// SPDX-License-Identifier: Apache-2.0
#include "inspect/fit.hpp"

#include "inspect_test_support.hpp"
#include "unit/text_test_support.hpp"

#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON && SLIMGEMM_HAVE_XXHASH

#include <nlohmann/json.hpp>

namespace slimgemm::inspect {
namespace {

// 1024 x 1024 weights: 2,097,152 bytes; packed 256 + 64 x 16 x 1536 + 64 x 128, then 65 x 4, padded
// to a multiple of 256.
constexpr std::uint64_t dense = 2'097'152;
constexpr std::uint64_t packed = 256 + 64 * 16 * 1536 + 64 * 128 + 512;
// A row tile of 1024 columns has 24,576 bytes, and 384 for exceptions, of which the file has 128;
// the next multiple of 256 is 128 away.
constexpr std::uint64_t packed_on_gpu = packed + 64 * (384 - 128 + 128);

class FitTest : public testing::Test {
 protected:
  void SetUp() override {
    write_safetensors(folder_.at("model.safetensors"),
                      {bf16_tensor("model.layers.0.q_proj.weight", {1024, 1024}, one),
                       bf16_tensor("model.norm.weight", {1024}, one)});
    config(R"({"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
               "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 100})");
  }

  void config(const std::string& text) const { write_text(folder_.at("config.json"), text); }
  [[nodiscard]] Model model() const { return Model(folder_.path()); }

  TestFolder folder_;
};

FitQuery query_of(std::uint64_t memory_bytes) {
  FitQuery query;
  query.gpu = "small GPU";
  query.memory_bytes = memory_bytes;
  query.memory_share = 1;
  return query;
}

// A token takes 2 x 2 layers x 2 heads x 32 values x 2 bytes = 512 bytes.
TEST_F(FitTest, FiguresByHand) {
  const Model model = this->model();
  const FitResult result = fit(model, query_of(dense + 2048 + 51200));
  EXPECT_EQ(result.unpacked.weight_bytes, dense + 2048);
  EXPECT_EQ(result.packed.weight_bytes, packed_on_gpu + 2048);
  EXPECT_EQ(result.unpacked.file_bytes, model.file(0).file_bytes()) << "with the header";
  EXPECT_EQ(result.packed.file_bytes, packed + 2048 + 4096);
  EXPECT_FALSE(result.is_packed);
  EXPECT_EQ(result.packed_tensors, 1U);
  EXPECT_EQ(result.context, 100U) << "max_position_embeddings";
  EXPECT_EQ(result.kv_query_bytes, 51200U);
  EXPECT_EQ(result.unpacked.left_bytes(), 51200U);
  EXPECT_EQ(result.unpacked.kv_fits, true) << "to the byte";
  EXPECT_EQ(result.unpacked.sequences_max, 1U);
  EXPECT_EQ(result.unpacked.context_max, 100U);
  EXPECT_EQ(result.packed.left_bytes(), dense - packed_on_gpu + 51200);
  EXPECT_EQ(result.packed.sequences_max, (dense - packed_on_gpu + 51200) / 51200);
  EXPECT_EQ(result.packed.context_max, (dense - packed_on_gpu + 51200) / 512);
}

TEST_F(FitTest, OnlyPackedFits) {
  const Model model = this->model();
  FitQuery query = query_of(packed_on_gpu + 2048 + 10 * 512);
  query.context = 10;
  FitResult result = fit(model, query);
  EXPECT_FALSE(result.unpacked.weights_fit());
  EXPECT_EQ(result.unpacked.gpus_for_weights(), 2U);
  EXPECT_EQ(result.unpacked.kv_fits, false);
  EXPECT_EQ(result.packed.kv_fits, true);
  query.batch = 2;
  result = fit(model, query);
  EXPECT_EQ(result.packed.kv_fits, false);
  EXPECT_EQ(result.packed.context_max, 5U);
  const std::string text = fit_text(model, query, result);
  EXPECT_TRUE(contains(text, "no, on 2 GPUs"));
  EXPECT_TRUE(contains(text, "KV cache of 2 x 10"));
  EXPECT_TRUE(contains(text, "Assumed:"));
}

TEST_F(FitTest, MemoryShare) {
  FitQuery query = query_of(10'000'000);
  query.memory_share = 0.5;
  EXPECT_EQ(fit(model(), query).packed.usable_bytes, 5'000'000U);
}

TEST_F(FitTest, WithoutWhatItNeeds) {
  const FitQuery query = query_of(10'000'000);
  config(R"({"model_type": "mamba"})");
  Model without = model();
  FitResult result = fit(without, query);
  EXPECT_FALSE(result.packed.kv_fits.has_value());
  EXPECT_TRUE(
      contains(fit_text(without, query, result), "KV cache: unknown. layers of model_type"));
  config(R"({"model_type": "bert"})");
  const Model encoder = model();
  EXPECT_TRUE(contains(fit_text(encoder, query, fit(encoder, query)), "an encoder and keeps none"));
  std::filesystem::remove(folder_.at("config.json"));
  const Model bare = model();
  EXPECT_TRUE(contains(fit_text(bare, query, fit(bare, query)), "there is no config.json"));
}

TEST_F(FitTest, RefusesWhatMakesNoSense) {
  const Model model = this->model();
  const auto message_of = [&](const FitQuery& query) -> std::string {
    try {
      static_cast<void>(fit(model, query));
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  FitQuery query = query_of(0);
  EXPECT_TRUE(contains(message_of(query), "memory is 0 bytes"));
  query = query_of(1000);
  query.memory_share = 1.5;
  EXPECT_TRUE(contains(message_of(query), "--memory-share is 1.5"));
  query = query_of(1000);
  query.batch = 0;
  EXPECT_TRUE(contains(message_of(query), "--batch is 0"));
  query = query_of(1000);
  query.context = 1ULL << 40;
  EXPECT_TRUE(contains(message_of(query), "--context is 1099511627776; it must be 1 to"));
}

TEST_F(FitTest, Json) {
  const Model model = this->model();
  const FitQuery query = query_of(dense + 2048);
  const auto json = nlohmann::json::parse(fit_json(model, query, fit(model, query)));
  EXPECT_EQ(json["schema"], "slimgemm-fit-1");
  EXPECT_EQ(json["unpacked"]["weight_bytes"], dense + 2048);
  EXPECT_EQ(json["unpacked"]["weights_fit"], true);
  EXPECT_EQ(json["unpacked"]["sequences_max"], 0);
  EXPECT_EQ(json["kv_cache"]["bytes_per_token"], 512);
  EXPECT_EQ(json["packed_is_exact"], false);
}

}  // namespace
}  // namespace slimgemm::inspect

#endif
