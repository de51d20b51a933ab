// SPDX-License-Identifier: Apache-2.0
// Sizes of models whose config.json is public, computed by hand.
#include "inspect/kv_cache.hpp"
#include "unit/text_test_support.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

namespace slimgemm::inspect {
namespace {

bool assumes(const KvCache& cache, const std::string& part) {
  for (const std::string& assumption : cache.assumptions) {
    if (contains(assumption, part)) return true;
  }
  return false;
}

ModelConfig llama3_8b() {
  ModelConfig config;
  config.model_type = "llama";
  config.num_hidden_layers = 32;
  config.hidden_size = 4096;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 8;
  return config;
}

TEST(KvCache, GroupedQueries) {
  ModelConfig config = llama3_8b();
  const KvCache cache = kv_cache(config, 2);
  EXPECT_EQ(cache.bytes_per_token, 131072U) << "2 x 32 x 8 x 128 x 2";
  EXPECT_TRUE(assumes(cache, "hidden_size / num_attention_heads = 4096 / 32"));
  EXPECT_EQ(cache.bytes_of(8192), 1ULL << 30);
  EXPECT_EQ(kv_cache(config, 1).bytes_per_token, 65536U) << "FP8";
  config.head_dim = 64;
  EXPECT_EQ(kv_cache(config, 2).bytes_per_token, 65536U) << "head_dim wins over hidden_size";
}

TEST(KvCache, EveryHeadItsOwnWhereNothingElseIsSaid) {
  ModelConfig config = llama3_8b();
  config.num_key_value_heads.reset();
  const KvCache cache = kv_cache(config, 2);
  EXPECT_EQ(cache.bytes_per_token, 4 * 131072U);
  EXPECT_TRUE(assumes(cache, "no num_key_value_heads"));
}

TEST(KvCache, DeepSeekLatentAttention) {
  ModelConfig config;
  config.model_type = "deepseek_v3";
  config.num_hidden_layers = 61;
  config.hidden_size = 7168;
  config.num_attention_heads = 128;
  config.num_key_value_heads = 128;
  config.kv_lora_rank = 512;
  config.qk_rope_head_dim = 64;
  const KvCache cache = kv_cache(config, 2);
  EXPECT_EQ(cache.bytes_per_token, 70272U) << "61 x (512 + 64) x 2";
  EXPECT_TRUE(contains(cache.formula, "kv_lora_rank + qk_rope_head_dim"));
  EXPECT_TRUE(cache.assumptions.empty());
}

TEST(KvCache, SlidingWindows) {
  ModelConfig config = llama3_8b();
  config.num_hidden_layers = 6;
  config.sliding_window = 1024;
  EXPECT_TRUE(assumes(kv_cache(config, 2), "an upper bound"));
  config.sliding_window_pattern = 6;  // five layers of six see 1024 tokens
  KvCache cache = kv_cache(config, 2);
  const std::uint64_t layer = 2 * 8 * 128 * 2;
  EXPECT_EQ(cache.bytes_of(1000), 1000 * 6 * layer);
  EXPECT_EQ(cache.bytes_of(5000), 5000 * layer + 1024 * 5 * layer);
  config.layer_types = {"sliding_attention", "full_attention",    "sliding_attention",
                        "full_attention",    "sliding_attention", "full_attention"};
  cache = kv_cache(config, 2);
  EXPECT_EQ(cache.bytes_of(5000), 5000 * 3 * layer + 1024 * 3 * layer);
  EXPECT_TRUE(contains(cache.formula, "3 more layers keep the last 1024 tokens alone"));
}

TEST(KvCache, LinearAttentionKeepsNoTokens) {
  ModelConfig config = llama3_8b();
  config.num_hidden_layers = 4;
  config.layer_types = {"linear_attention", "linear_attention", "linear_attention",
                        "full_attention"};
  const KvCache cache = kv_cache(config, 2);
  EXPECT_EQ(cache.bytes_per_token, 2U * 8 * 128 * 2);
  EXPECT_TRUE(assumes(cache, "3 layers keep a state of a fixed size"));
}

TEST(KvCache, TokensWithin) {
  KvCache cache;
  cache.bytes_per_token = 10;
  cache.window_bytes_per_token = 100;
  cache.window_tokens = 5;
  EXPECT_EQ(cache.tokens_within(109, 1000), 0U);
  EXPECT_EQ(cache.tokens_within(110, 1000), 1U);
  EXPECT_EQ(cache.tokens_within(559, 1000), 5U);
  EXPECT_EQ(cache.tokens_within(560, 1000), 6U) << "beyond the window, 10 bytes a token";
  EXPECT_EQ(cache.tokens_within(1ULL << 40, 1000), 1000U);
}

TEST(KvCache, FieldsOfNoModel) {
  ModelConfig config = llama3_8b();
  config.num_key_value_heads = 1 << 30;
  config.head_dim = 1 << 30;
  config.num_hidden_layers = 1 << 30;
  EXPECT_TRUE(contains(kv_cache(config, 2).unknown, "more than 4294967296 bytes a token"));
}

TEST(KvCache, SaysClearlyWhatItDoesNotKnow) {
  ModelConfig config = llama3_8b();
  config.model_type = "brandnew";
  EXPECT_TRUE(assumes(kv_cache(config, 2), "\"brandnew\" is not one that this command knows"));
  EXPECT_EQ(kv_cache(config, 2).bytes_per_token, 131072U);
  config.model_type.clear();
  EXPECT_TRUE(assumes(kv_cache(config, 2), "model_type"));
  config.model_type = "mamba2";
  EXPECT_TRUE(contains(kv_cache(config, 2).unknown, "state of another kind"));
  config.model_type = "t5";
  config.is_encoder_decoder = true;
  EXPECT_TRUE(contains(kv_cache(config, 2).unknown, "encoder with a decoder"));
  EXPECT_TRUE(contains(kv_cache(ModelConfig{}, 2).unknown, "no num_hidden_layers"));
  config = llama3_8b();
  config.hidden_size.reset();
  EXPECT_TRUE(contains(kv_cache(config, 2).unknown, "no head_dim or hidden_size"));
  config.num_attention_heads.reset();
  config.num_key_value_heads.reset();
  EXPECT_TRUE(contains(kv_cache(config, 2).unknown, "num_key_value_heads"));
  config.model_type = "bert";
  EXPECT_TRUE(kv_cache(config, 2).keeps_none);
}

#if SLIMGEMM_HAVE_JSON

TEST(ModelConfig, UsualNames) {
  const ModelConfig config = parse_config(
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32,
          "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": null,
          "hidden_size": 4096, "tie_word_embeddings": true, "sliding_window": null})",
      "config.json");
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.num_hidden_layers, 32);
  EXPECT_EQ(config.num_key_value_heads, 8);
  EXPECT_FALSE(config.head_dim.has_value());
  EXPECT_FALSE(config.sliding_window.has_value());
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(ModelConfig, OlderNamesAndTheLanguagePart) {
  const ModelConfig gpt2 =
      parse_config(R"({"model_type": "gpt2", "n_layer": 12, "n_head": 12, "n_embd": 768})", "c");
  EXPECT_EQ(kv_cache(gpt2, 2).bytes_per_token, 2U * 12 * 12 * 64 * 2);
  const ModelConfig vision = parse_config(
      R"({"model_type": "gemma3", "num_hidden_layers": 27, "text_config": {
          "model_type": "gemma3_text", "num_hidden_layers": 62, "num_experts_per_tok": 8,
          "n_routed_experts": 256}})",
      "c");
  EXPECT_EQ(vision.num_hidden_layers, 62);
  EXPECT_EQ(vision.model_type, "gemma3_text");
  EXPECT_EQ(vision.num_experts, 256);
  const ModelConfig falcon = parse_config(
      R"({"model_type": "falcon", "num_hidden_layers": 32, "num_attention_heads": 71,
          "hidden_size": 4544, "multi_query": true})",
      "c");
  EXPECT_EQ(kv_cache(falcon, 2).bytes_per_token, 2U * 32 * 64 * 2);
  const ModelConfig unused =
      parse_config(R"({"sliding_window": 32768, "use_sliding_window": false})", "c");
  EXPECT_FALSE(unused.sliding_window.has_value());
}

std::string message_of(const std::string& text) {
  try {
    static_cast<void>(parse_config(text, "dir/config.json"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::corrupt_data);
    return error.what();
  }
  return "no error";
}

TEST(ModelConfig, NamesWhatIsWrong) {
  EXPECT_TRUE(contains(message_of("{"), "dir/config.json is not JSON"));
  EXPECT_TRUE(contains(message_of("[1]"), "is not a JSON object"));
  EXPECT_TRUE(contains(message_of(R"({"num_hidden_layers": -3})"), "num_hidden_layers is -3"));
  EXPECT_TRUE(contains(message_of(R"({"head_dim": 1e30})"), "head_dim is 1e+30"));
  EXPECT_TRUE(contains(message_of(R"({"head_dim": "128"})"), "head_dim is \"128\""));
  EXPECT_TRUE(contains(message_of(R"({"hidden_size": 99999999999})"), "0 to 1073741824"));
}

#endif

}  // namespace
}  // namespace slimgemm::inspect
