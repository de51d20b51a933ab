// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

namespace slimgemm::inspect {

/// The safetensors files that make up the model in a directory, by name, each with the tensors that
/// must be in it: the shards of its model.safetensors.index.json, or model.safetensors, or all
/// *.safetensors, for which no tensors are named. Errors: io_error where there is none or a shard
/// is missing; corrupt_data for an index that is not sound; unsupported in a build without JSON.
std::map<std::string, std::vector<std::string>> find_shards(const std::string& directory);

}  // namespace slimgemm::inspect
