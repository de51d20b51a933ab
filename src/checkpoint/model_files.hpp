// SPDX-License-Identifier: Apache-2.0
// The JSON files of a model directory that packing changes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

namespace slimgemm::checkpoint {

/// True for "*.safetensors.index.json".
bool is_utf8(const std::string& text);

bool is_index(const std::string& name);

/// True for "*.safetensors".
bool is_safetensors(const std::string& name);

/// What an index needs to know of a shard: null where there is no such file.
struct ShardFacts {
  std::map<std::string, std::string> renamed;  ///< original name -> name of the packed tensor
  std::uint64_t tensor_bytes = 0;
};

/// Calls visit(tensor, shard) for every entry of the index's weight_map.
/// Errors: corrupt_data where it is not JSON or has no weight_map of strings.
void for_each_weight(
    const std::string& text, const std::string& path,
    const std::function<void(const std::string& tensor, const std::string& shard)>& visit);

/// The index with the packed tensors' names and the new total_size. `shards` has every shard that
/// the index names.
std::string changed_index(const std::string& text, const std::map<std::string, ShardFacts>& shards);

/// config.json with "quantization_config" added, or nothing where it is not a JSON object.
/// Errors: invalid_argument where it has a quantization_config (other than null) already.
std::optional<std::string> changed_config(const std::string& text, const std::string& path);

/// True if config.json says that the output layer shares the embeddings' weights.
bool has_tied_embeddings(const std::string& config_text);

}  // namespace slimgemm::checkpoint
