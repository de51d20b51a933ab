// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_files.hpp"

#include "checkpoint/packed_header.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <set>

namespace slimgemm::checkpoint {
namespace {

using nlohmann::ordered_json;

constexpr int indent = 2;

constexpr int depth_max =
    100;  // written again with indentation, deeper ones would grow without end

/// Discarded where the text is not JSON. Errors: corrupt_data.
ordered_json parse(const std::string& text) {
  const auto check_depth = [](int depth, ordered_json::parse_event_t, ordered_json&) {
    if (depth <= depth_max) return true;
    throw Error(ErrorCode::corrupt_data,
                fmt::format("JSON nested more than {} levels deep", depth_max));
  };
  return ordered_json::parse(text, check_depth, false);
}

bool says_tied(const ordered_json& config) {
  const auto tied = config.find("tie_word_embeddings");
  return tied != config.end() && tied->is_boolean() && tied->get<bool>();
}

}  // namespace

bool is_utf8(const std::string& text) {
  try {
    static_cast<void>(ordered_json(text).dump());
    return true;
  } catch (const ordered_json::exception&) {
    return false;
  }
}

bool is_index(const std::string& name) { return name.ends_with(".safetensors.index.json"); }

bool is_safetensors(const std::string& name) { return name.ends_with(".safetensors"); }

void for_each_weight(
    const std::string& text, const std::string& path,
    const std::function<void(const std::string& tensor, const std::string& shard)>& visit) {
  const ordered_json index = parse(text);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{} is not an index of shards: it has no weight_map", path));
  }
  for (const auto& [tensor, shard] : index["weight_map"].items()) {
    if (!shard.is_string()) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{}: weight_map has no file name for {}", path, printable(tensor)));
    }
    visit(tensor, shard.get<std::string>());
  }
}

std::string changed_index(const std::string& text,
                          const std::map<std::string, ShardFacts>& shards) {
  ordered_json index = parse(text);
  ordered_json weight_map = ordered_json::object();
  std::set<std::string> named;
  for (const auto& [tensor, shard_json] : index["weight_map"].items()) {
    const auto shard = shard_json.get<std::string>();
    const auto& renamed = shards.at(shard).renamed;
    const auto found = renamed.find(tensor);
    weight_map[found == renamed.end() ? tensor : found->second] = shard;
    named.insert(shard);
  }
  index["weight_map"] = std::move(weight_map);
  if (index.contains("metadata") && index["metadata"].is_object() &&
      index["metadata"].contains("total_size")) {
    std::uint64_t total = 0;
    for (const std::string& shard : named) total += shards.at(shard).tensor_bytes;
    index["metadata"]["total_size"] = total;
  }
  return index.dump(indent) + "\n";
}

std::optional<std::string> changed_config(const std::string& text, const std::string& path) {
  ordered_json config = parse(text);
  if (!config.is_object()) return std::nullopt;
  const auto quantized = config.find("quantization_config");
  if (quantized != config.end() && !quantized->is_null()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has a quantization_config: the model is quantized already, and its "
                            "loader must find that entry. Its BF16 files can be packed one by one",
                            path));
  }
  config["quantization_config"] = {{"quant_method", "slimgemm"},
                                   {"format", std::string(container_version)},
                                   {"bits", 12},
                                   {"packed_suffix", packed_name("")}};
  return config.dump(indent) + "\n";
}

bool has_tied_embeddings(const std::string& config_text) {
  const ordered_json config = parse(config_text);
  if (!config.is_object()) return false;
  const auto inner = config.find("text_config");
  return says_tied(config) || (inner != config.end() && inner->is_object() && says_tied(*inner));
}

}  // namespace slimgemm::checkpoint
