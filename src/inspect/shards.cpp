// SPDX-License-Identifier: Apache-2.0
#include "inspect/shards.hpp"

#include "checkpoint/file_io.hpp"
#include "checkpoint/model_files.hpp"
#include "checkpoint/safetensors_header.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <filesystem>

namespace slimgemm::inspect {
namespace {

namespace fs = std::filesystem;
using Shards = std::map<std::string, std::vector<std::string>>;

constexpr std::uint64_t index_bytes_max = 100'000'000;
constexpr const char* index_name = "model.safetensors.index.json";
constexpr const char* single_name = "model.safetensors";

Shards read_index(const fs::path& index) {
  const std::string path = index.string();
  Shards shards;
  checkpoint::for_each_weight(
      checkpoint::read_text(path, index_bytes_max), path,
      [&](const std::string& tensor, const std::string& shard) {
        if (!checkpoint::is_safetensors(shard) || fs::path(shard).filename().string() != shard) {
          throw Error(
              ErrorCode::corrupt_data,
              fmt::format("{}: tensor {} is in \"{}\", which is no safetensors file of the "
                          "same directory",
                          path, checkpoint::printable(tensor), checkpoint::printable(shard)));
        }
        shards[shard].push_back(tensor);
      });
  std::error_code error;
  for (const auto& [name, tensors] : shards) {
    if (fs::exists(index.parent_path() / name, error)) continue;
    throw Error(ErrorCode::io_error,
                fmt::format("{} names {}, which is not there: download the whole model", path,
                            checkpoint::printable(name)));
  }
  if (shards.empty()) {
    throw Error(ErrorCode::corrupt_data, fmt::format("{}: its weight_map is empty", path));
  }
  return shards;
}

}  // namespace

std::map<std::string, std::vector<std::string>> find_shards(const std::string& directory) {
  const fs::path folder(directory);
  std::error_code error;
  if (fs::exists(folder / index_name, error)) return read_index(folder / index_name);
  if (fs::exists(folder / single_name, error)) return {{single_name, {}}};
  Shards shards;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (checkpoint::is_safetensors(name)) shards[name];
  }
  if (error) {
    throw Error(ErrorCode::io_error, fmt::format("cannot list {}: {}", directory, error.message()));
  }
  if (shards.empty()) {
    throw Error(ErrorCode::io_error,
                fmt::format("{} holds no safetensors file: give a model's directory, with {} or "
                            "{}, or a file",
                            directory, single_name, index_name));
  }
  return shards;
}

}  // namespace slimgemm::inspect
