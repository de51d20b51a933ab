// SPDX-License-Identifier: Apache-2.0
// What a model's config.json says of its layers, as far as sizes depend on it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::inspect {

/// Fields by their usual names in config.json; absent where the file does not have them. A model
/// that also sees or hears keeps those of its language part in "text_config": they are found there.
struct ModelConfig {
  std::string model_type;    ///< "llama"; empty: not given
  std::string architecture;  ///< first of "architectures": "LlamaForCausalLM"; empty: not given
  std::optional<std::int64_t> num_hidden_layers;
  std::optional<std::int64_t> hidden_size;
  std::optional<std::int64_t> num_attention_heads;
  std::optional<std::int64_t> num_key_value_heads;
  std::optional<std::int64_t> head_dim;
  std::optional<std::int64_t> kv_lora_rank;      ///< DeepSeek's latent attention (MLA)
  std::optional<std::int64_t> qk_rope_head_dim;  ///< likewise
  std::optional<std::int64_t> max_position_embeddings;
  std::optional<std::int64_t> sliding_window;          ///< tokens
  std::optional<std::int64_t> sliding_window_pattern;  ///< every n-th layer sees all tokens
  std::optional<std::int64_t> num_experts;
  std::optional<std::int64_t> num_experts_per_tok;
  std::vector<std::string> layer_types;  ///< "full_attention", "sliding_attention", ...
  bool is_encoder_decoder = false;
  bool tie_word_embeddings = false;  ///< the output layer multiplies with the embeddings
};

/// Errors: corrupt_data naming `file` where the text is not a JSON object or a field is not what
/// its name says; unsupported in a build without JSON.
ModelConfig parse_config(std::string_view json, const std::string& file);

}  // namespace slimgemm::inspect
