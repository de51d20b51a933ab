// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/pack_state.hpp"

#include "checkpoint/directory.hpp"
#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/packed_file.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t state_bytes_max = 1'000'000'000;

json to_json(const FinishedFile& file) {
  return {{"source_bytes", file.source.bytes},
          {"source_modified_ns", file.source.modified_ns},
          {"source_changed_ns", file.source.changed_ns},
          {"source_inode", file.source.inode},
          {"source_header_xxh3", file.source.header_xxh3},
          {"kind", name(file.record.kind)},
          {"bytes", file.record.bytes},
          {"xxh3", file.record.xxh3},
          {"renamed", file.shard.renamed},
          {"tensor_bytes", file.shard.tensor_bytes},
          {"tensors_packed", file.summary.tensors_packed},
          {"weights_packed", file.summary.weights_packed},
          {"packed_bytes", file.summary.packed_bytes},
          {"exceptions", file.summary.exceptions},
          {"raw16_matrices", file.summary.raw16_matrices}};
}

FinishedFile from_json(const std::string& name, const json& value) {
  FinishedFile file;
  value.at("source_bytes").get_to(file.source.bytes);
  value.at("source_modified_ns").get_to(file.source.modified_ns);
  value.at("source_changed_ns").get_to(file.source.changed_ns);
  value.at("source_inode").get_to(file.source.inode);
  value.at("source_header_xxh3").get_to(file.source.header_xxh3);
  file.record.name = name;
  const bool packed = value.at("kind").get<std::string>() == "packed";
  file.record.kind = packed ? FileKind::packed : FileKind::copied;
  value.at("bytes").get_to(file.record.bytes);
  value.at("xxh3").get_to(file.record.xxh3);
  value.at("renamed").get_to(file.shard.renamed);
  value.at("tensor_bytes").get_to(file.shard.tensor_bytes);
  value.at("tensors_packed").get_to(file.summary.tensors_packed);
  value.at("weights_packed").get_to(file.summary.weights_packed);
  value.at("packed_bytes").get_to(file.summary.packed_bytes);
  value.at("exceptions").get_to(file.summary.exceptions);
  value.at("raw16_matrices").get_to(file.summary.raw16_matrices);
  return file;
}

// The state of the interrupted run that left `working`; empty where that ran with other options.
// The caller holds its lock.
PackState take_over(const std::string& working, const std::string& in, const std::string& options) {
  auto earlier = read_state(working);
  // A run that was killed at once leaves nothing, or the state half written.
  const auto is_first_state = [](const fs::directory_entry& entry) {
    return entry.path().filename() == std::string(state_name) + ".new" && !entry.is_directory();
  };
  const bool ours = earlier || std::all_of(fs::directory_iterator(working),
                                           fs::directory_iterator(), is_first_state);
  if (!ours || fs::equivalent(working, in)) {
    refuse(fmt::format("{} exists and is no interrupted run's: move it away", working));
  }
  if (earlier && earlier->options == options) return std::move(*earlier);
  return {};
}

// Removes what lies in `working` and is neither the state nor finished.
void remove_leftovers(const std::string& working, const PackState& state) {
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::recursive_directory_iterator(working)) {
    if (entry.is_directory() && !entry.is_symlink()) continue;
    const std::string name = entry.path().lexically_relative(working).generic_string();
    if (name != state_name && state.files.count(name) == 0) leftovers.push_back(entry.path());
  }
  for (const fs::path& leftover : leftovers) fs::remove(leftover);
}

}  // namespace

std::string options_text(const std::string& in, const PackCheckpointOptions& options) {
  return json{{"source", std::filesystem::canonical(in).string()},
              {"container", std::string(container_version)},
              {"include", options.select.include},
              {"exclude", options.select.exclude},
              {"fp16", options.select.fp16},
              {"fp32", options.select.fp32},
              {"tied", options.select.tied_embeddings},
              {"max_exception_rate", options.codec.max_exception_rate}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string unpack_options_text(const std::string& in, const std::string& manifest_xxh3) {
  return json{{"packed", std::filesystem::canonical(in).string()}, {"manifest", manifest_xxh3}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

SourceFacts source_facts(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) {
    throw Error(ErrorCode::io_error, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
  }
  constexpr std::int64_t ns_per_s = 1'000'000'000;
  return {.bytes = static_cast<std::uint64_t>(facts.st_size),
          .modified_ns = facts.st_mtim.tv_sec * ns_per_s + facts.st_mtim.tv_nsec,
          .changed_ns = facts.st_ctim.tv_sec * ns_per_s + facts.st_ctim.tv_nsec,
          .inode = static_cast<std::uint64_t>(facts.st_ino),
          .header_xxh3 = ""};
}

std::optional<PackState> read_state(const std::string& directory) {
  const std::string path = join(directory, state_name);
  if (!std::filesystem::exists(path)) return std::nullopt;
  try {
    const json value = json::parse(read_text(path, state_bytes_max));
    PackState state;
    state.options = value.at("options").get<std::string>();
    for (const auto& [name, file] : value.at("files").items()) {
      state.files.emplace(name, from_json(name, file));
    }
    return state;
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

void write_state(const std::string& directory, const PackState& state) {
  json files = json::object();
  for (const auto& [name, file] : state.files) files[name] = to_json(file);
  const json value{{"options", state.options}, {"files", std::move(files)}};
  write_text(join(directory, state_name), value.dump(1) + "\n");
}

WorkingDirectory open_working(const std::string& in, const std::string& out,
                              const std::string& options, std::uint64_t needed,
                              const std::function<bool(const FinishedFile&)>& is_reusable) {
  const std::string working = working_name(out);
  WorkingDirectory opened;
  if (fs::symlink_status(working).type() == fs::file_type::not_found) {
    check_space(needed, free_bytes(fs::absolute(out).parent_path().string()), out);
    fs::create_directory(working);
    opened.lock = std::make_unique<DirectoryLock>(working);
  } else {
    if (!fs::is_directory(fs::symlink_status(working))) {
      refuse(fmt::format("{} exists and is no interrupted run's: move it away", working));
    }
    opened.lock = std::make_unique<DirectoryLock>(working);
    opened.state = take_over(working, in, options);
    std::erase_if(opened.state.files,
                  [&](const auto& entry) { return !is_reusable(entry.second); });
    remove_leftovers(working, opened.state);
    std::uint64_t there = 0;
    for (const auto& [name, file] : opened.state.files) there += file.record.bytes;
    check_space(needed - std::min(there, needed), free_bytes(working), out);
  }
  opened.state.options = options;
  write_state(working, opened.state);
  return opened;
}

bool is_finished(const FinishedFile& finished, const SourceFacts& source,
                 const std::string& directory) {
  if (finished.source != source) return false;
  const std::string path = join(directory, finished.record.name);
  try {
    if (source_facts(path).bytes != finished.record.bytes) return false;
    if (finished.record.kind != FileKind::packed) return true;
    return describe(PackedFile(path)).header_xxh3 == finished.record.xxh3;
  } catch (const Error&) {
    return false;  // it is made again
  }
}

}  // namespace slimgemm::checkpoint
