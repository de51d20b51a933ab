// SPDX-License-Identifier: Apache-2.0
#include "inspect/model_config.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

#include <initializer_list>

namespace slimgemm::inspect {
namespace {

using JsonValue = nlohmann::json;

// No model has so much of anything; larger values would only overflow later.
constexpr std::int64_t field_max = std::int64_t{1} << 30;
constexpr std::size_t layer_types_max = 100'000;

class Fields {
 public:
  Fields(const JsonValue& json, const std::string& file) : top_(json), file_(file) {
    for (const char* part : {"text_config", "llm_config", "language_config", "thinker_config"}) {
      if (json.contains(part) && json[part].is_object()) text_ = &json[part];
    }
  }

  /// The first of these names that the language part or the file has, unless it is null.
  [[nodiscard]] const JsonValue* find(std::initializer_list<const char*> names) const {
    for (const JsonValue* part : {text_, &top_}) {
      if (part == nullptr) continue;
      for (const char* name : names) {
        const auto found = part->find(name);
        if (found != part->end() && !found->is_null()) return &*found;
      }
    }
    return nullptr;
  }

  /// Positive integers; a 0 counts as absent, as some files have it for what a model lacks.
  [[nodiscard]] std::optional<std::int64_t> size(std::initializer_list<const char*> names) const {
    const JsonValue* value = find(names);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_unsigned() || value->get<std::uint64_t>() > field_max) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: {} is {}; it must be a whole number, 0 to {}", file_,
                              *names.begin(), brief(*value), field_max));
    }
    const auto number = value->get<std::int64_t>();
    return number == 0 ? std::nullopt : std::optional(number);
  }

  [[nodiscard]] bool flag(const char* name, bool otherwise) const {
    const JsonValue* value = find({name});
    return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
  }

  [[nodiscard]] static std::string brief(const JsonValue& value) {
    std::string text = value.dump(-1, ' ', false, JsonValue::error_handler_t::replace);
    if (text.size() > 40) text = text.substr(0, 40) + "...";
    return text;
  }

 private:
  const JsonValue& top_;
  const std::string& file_;
  const JsonValue* text_ = nullptr;
};

std::string text_of(const JsonValue* value) {
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

void read_attention(const Fields& fields, ModelConfig& config) {
  config.num_attention_heads = fields.size({"num_attention_heads", "n_head", "num_heads"});
  config.num_key_value_heads =
      fields.size({"num_key_value_heads", "num_kv_heads", "multi_query_group_num"});
  if (!config.num_key_value_heads && fields.flag("multi_query", false)) {
    config.num_key_value_heads = 1;
  }
  config.head_dim = fields.size({"head_dim", "kv_channels", "attention_head_dim"});
  config.kv_lora_rank = fields.size({"kv_lora_rank"});
  config.qk_rope_head_dim = fields.size({"qk_rope_head_dim"});
  if (fields.flag("use_sliding_window", true)) {
    config.sliding_window = fields.size({"sliding_window"});
    config.sliding_window_pattern = fields.size({"sliding_window_pattern"});
  }
  const JsonValue* types = fields.find({"layer_types"});
  if (types == nullptr || !types->is_array() || types->size() > layer_types_max) return;
  for (const JsonValue& type : *types) config.layer_types.push_back(text_of(&type));
}

}  // namespace

ModelConfig parse_config(std::string_view json, const std::string& file) {
  JsonValue parsed;
  try {
    parsed = JsonValue::parse(json);
  } catch (const JsonValue::exception& error) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{} is not JSON: {}", file, error.what()));
  }
  if (!parsed.is_object()) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{} is not a JSON object", file));
  }
  const Fields fields(parsed, file);
  ModelConfig config;
  config.model_type = text_of(fields.find({"model_type"}));
  const JsonValue* architectures = fields.find({"architectures"});
  if (architectures != nullptr && architectures->is_array() && !architectures->empty()) {
    config.architecture = text_of(&architectures->front());
  }
  config.num_hidden_layers = fields.size({"num_hidden_layers", "n_layer", "num_layers"});
  config.hidden_size = fields.size({"hidden_size", "n_embd", "d_model"});
  config.max_position_embeddings =
      fields.size({"max_position_embeddings", "n_positions", "seq_length", "max_seq_len"});
  config.num_experts = fields.size({"num_experts", "n_routed_experts", "num_local_experts"});
  config.num_experts_per_tok = fields.size({"num_experts_per_tok", "num_experts_per_token"});
  config.is_encoder_decoder = fields.flag("is_encoder_decoder", false);
  config.tie_word_embeddings = fields.flag("tie_word_embeddings", false);
  read_attention(fields, config);
  return config;
}

}  // namespace slimgemm::inspect

#else

namespace slimgemm::inspect {

ModelConfig parse_config(std::string_view, const std::string& file) {
  throw Error(ErrorCode::unsupported,
              fmt::format("cannot read {}: this build has no JSON reader. Install "
                          "nlohmann-json3-dev, configure and build again",
                          file));
}

}  // namespace slimgemm::inspect

#endif
