// SPDX-License-Identifier: Apache-2.0
#include "inspect/kv_cache.hpp"

#include "checkpoint/safetensors_header.hpp"
#include "support/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace slimgemm::inspect {
namespace {

using checkpoint::printable;

// model_type of decoders for which the formulas here are known to hold.
constexpr std::array<std::string_view, 43> known_decoders = {
    "bloom",        "cohere",    "cohere2",  "deepseek_v2", "deepseek_v3", "ernie4_5",
    "ernie4_5_moe", "exaone4",   "falcon",   "gemma",       "gemma2",      "gemma3",
    "gemma3_text",  "glm",       "glm4",     "glm4_moe",    "gpt2",        "gpt_bigcode",
    "gpt_neox",     "gpt_oss",   "granite",  "granitemoe",  "internlm2",   "kimi_k2",
    "llama",        "ministral", "mistral",  "mistral3",    "mixtral",     "olmo",
    "olmo2",        "olmoe",     "opt",      "phi",         "phi3",        "phimoe",
    "qwen2",        "qwen2_moe", "qwen2_vl", "qwen3",       "qwen3_moe",   "smollm3",
    "starcoder2"};

constexpr std::array<std::string_view, 12> known_encoders = {
    "albert",     "bert",  "camembert",  "deberta-v2", "distilbert",  "electra",
    "modernbert", "mpnet", "nomic_bert", "roberta",    "xlm-roberta", "new"};

// Models whose layers, or some of them, keep a state of a fixed size in place of a cache, in ways
// that config.json does not tell by layer_types.
constexpr std::array<std::string_view, 12> known_recurrent = {
    "bamba",   "falcon_h1",  "falcon_mamba",    "jamba", "mamba", "mamba2",
    "minimax", "nemotron_h", "recurrent_gemma", "rwkv",  "zamba", "zamba2"};

// Far above any model's, and so low that a billion tokens of it still fit 64 bits.
constexpr std::uint64_t token_bytes_max = std::uint64_t{1} << 32;

template <std::size_t count>
bool is_among(const std::array<std::string_view, count>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

struct LayerCounts {
  std::int64_t full = 0;
  std::int64_t window = 0;
  std::int64_t stateful = 0;
};

bool is_window(std::string_view type) {
  return type == "sliding_attention" || type == "chunked_attention";
}

bool is_stateful(std::string_view type) {
  return type == "linear_attention" || type == "conv" || type == "mamba" || type == "recurrent";
}

LayerCounts count_listed(const ModelConfig& config, KvCache& cache) {
  LayerCounts counts;
  std::string unknown;
  for (const std::string& type : config.layer_types) {
    if (is_stateful(type)) {
      ++counts.stateful;
    } else if (is_window(type) && config.sliding_window) {
      ++counts.window;
    } else {
      ++counts.full;
      if (type != "full_attention" && type != "attention") unknown = type;
    }
  }
  if (!unknown.empty()) {
    cache.assumptions.push_back(
        fmt::format("layers of type \"{}\" are counted as keeping all tokens: an upper bound",
                    printable(unknown)));
  }
  if (counts.stateful > 0) {
    cache.assumptions.push_back(
        fmt::format("{} layers keep a state of a fixed size instead of a cache (linear attention "
                    "or the like); that state is not counted",
                    counts.stateful));
  }
  return counts;
}

LayerCounts count_layers(const ModelConfig& config, KvCache& cache) {
  const std::int64_t layers = *config.num_hidden_layers;
  if (static_cast<std::int64_t>(config.layer_types.size()) == layers) {
    return count_listed(config, cache);
  }
  if (config.sliding_window && config.sliding_window_pattern) {
    const std::int64_t full = layers / *config.sliding_window_pattern;
    return {full, layers - full, 0};
  }
  if (config.sliding_window) {
    cache.assumptions.push_back(
        fmt::format("config.json has a sliding_window of {} tokens, but does not say in which "
                    "layers: all are counted as keeping all tokens, an upper bound",
                    *config.sliding_window));
  }
  return {layers, 0, 0};
}

/// Values that one layer keeps of one token; 0, with cache.unknown set, where that is not known.
std::int64_t values_per_token(const ModelConfig& config, KvCache& cache, std::string& formula) {
  if (config.kv_lora_rank && config.qk_rope_head_dim) {
    formula = fmt::format(
        "({} + {}) values (kv_lora_rank + qk_rope_head_dim: latent attention, "
        "MLA)",
        *config.kv_lora_rank, *config.qk_rope_head_dim);
    return *config.kv_lora_rank + *config.qk_rope_head_dim;
  }
  std::optional<std::int64_t> heads = config.num_key_value_heads;
  if (!heads && config.num_attention_heads) {
    heads = config.num_attention_heads;
    cache.assumptions.push_back(
        fmt::format("config.json has no num_key_value_heads: all {} attention heads are taken to "
                    "have K and V of their own",
                    *heads));
  }
  std::optional<std::int64_t> head_dim = config.head_dim;
  if (!head_dim && config.hidden_size && config.num_attention_heads) {
    head_dim = *config.hidden_size / *config.num_attention_heads;
    cache.assumptions.push_back(
        fmt::format("config.json has no head_dim: hidden_size / num_attention_heads = {} / {} is "
                    "taken",
                    *config.hidden_size, *config.num_attention_heads));
  }
  if (!heads || !head_dim) {
    cache.unknown = fmt::format(
        "config.json has no {}, from which the size of the KV cache follows",
        !heads ? "num_key_value_heads or num_attention_heads" : "head_dim or hidden_size");
    return 0;
  }
  formula =
      fmt::format("2 (K and V) x {} head{} x {} values", *heads, *heads == 1 ? "" : "s", *head_dim);
  return 2 * *heads * *head_dim;
}

// Sets `unknown` or `keeps_none` where the formulas do not hold.
void judge_architecture(const ModelConfig& config, KvCache& cache) {
  const std::string& type = config.model_type;
  if (is_among(known_encoders, type)) {
    cache.keeps_none = true;
    return;
  }
  if (config.is_encoder_decoder) {
    cache.unknown = fmt::format(
        "this is an encoder with a decoder (model_type \"{}\"), which keeps K and V of its input, "
        "too; this command counts decoders alone",
        printable(type));
  } else if (is_among(known_recurrent, type) && config.layer_types.empty()) {
    cache.unknown = fmt::format(
        "layers of model_type \"{}\" keep a state of another kind than K and V, whose size does "
        "not follow from config.json as this command reads it",
        printable(type));
  } else if (!config.num_hidden_layers) {
    cache.unknown =
        "config.json has no num_hidden_layers, from which the size of the KV cache "
        "follows";
  } else if (!is_among(known_decoders, type)) {
    cache.assumptions.push_back(fmt::format(
        "model_type {} is not one that this command knows: the KV cache is computed from the "
        "fields of config.json as for Llama or DeepSeek; check it before you rely on it",
        type.empty() ? "is not given, so the model" : "\"" + printable(type) + "\""));
  }
}

}  // namespace

std::uint64_t KvCache::bytes_of(std::uint64_t tokens) const {
  return tokens * bytes_per_token + std::min(tokens, window_tokens) * window_bytes_per_token;
}

std::uint64_t KvCache::tokens_within(std::uint64_t bytes, std::uint64_t limit) const {
  std::uint64_t low = 0;
  std::uint64_t high = limit;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (bytes_of(middle) <= bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

KvCache kv_cache(const ModelConfig& config, std::uint64_t element_bytes) {
  KvCache cache;
  judge_architecture(config, cache);
  if (cache.keeps_none || !cache.unknown.empty()) return cache;
  std::string formula;
  const auto values = static_cast<std::uint64_t>(values_per_token(config, cache, formula));
  if (values == 0) return cache;
  const LayerCounts layers = count_layers(config, cache);
  const auto all_layers = static_cast<std::uint64_t>(layers.full + layers.window);
  const auto all_values = checked_multiply(all_layers, values);
  const auto all_bytes = all_values ? checked_multiply(*all_values, element_bytes) : std::nullopt;
  if (!all_bytes || *all_bytes > token_bytes_max) {
    cache.unknown = fmt::format(
        "by config.json it takes more than {} bytes a token, which no model does; see whether its "
        "fields are right",
        token_bytes_max);
    return cache;
  }
  cache.bytes_per_token = static_cast<std::uint64_t>(layers.full) * values * element_bytes;
  cache.formula = fmt::format("{} layers x {} x {} byte{}", layers.full, formula, element_bytes,
                              element_bytes == 1 ? "" : "s");
  if (layers.window > 0) {
    cache.window_tokens = static_cast<std::uint64_t>(*config.sliding_window);
    cache.window_bytes_per_token =
        static_cast<std::uint64_t>(layers.window) * values * element_bytes;
    cache.formula += fmt::format("; {} more layers keep the last {} tokens alone", layers.window,
                                 cache.window_tokens);
  }
  return cache;
}

}  // namespace slimgemm::inspect
