// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/pack_state.hpp"
#include "checkpoint/packed_header.hpp"
#include "checkpoint/xxh3.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <set>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t manifest_bytes_max = 1'000'000'000;

// A name that stays inside the directory and is written in one way only.
bool is_inside(const std::string& name) {
  if (name.empty() || name.find('\0') != std::string::npos) return false;
  const fs::path path(name);
  if (path.is_absolute() || path.lexically_normal().native() != name) return false;
  for (const fs::path& part : path) {
    if (part.empty() || part == ".." || part == ".") return false;
  }
  return true;
}

std::optional<FileKind> parse_kind(const std::string& text) {
  for (const FileKind kind : {FileKind::packed, FileKind::copied, FileKind::changed}) {
    if (text == name(kind)) return kind;
  }
  return std::nullopt;
}

std::string take_string(const json& value, const char* key, const std::string& path) {
  const auto found = value.find(key);
  if (found == value.end() || !found->is_string()) {
    corrupt(path, fmt::format("a file has no string {}", key));
  }
  return found->get<std::string>();
}

FileRecord parse_file(const json& value, const std::string& path) {
  if (!value.is_object()) corrupt(path, "an entry of files is not an object");
  FileRecord record;
  record.name = take_string(value, "name", path);
  if (!is_inside(record.name) || record.name == manifest_name || record.name == state_name ||
      record.name == std::string(state_name) + ".new") {
    corrupt(path, fmt::format("the file name {} is not allowed: it must lie inside the directory",
                              printable(record.name)));
  }
  const auto kind = parse_kind(take_string(value, "kind", path));
  if (!kind) {
    corrupt(path, fmt::format("file {} has the kind {}: it must be packed, copied or changed",
                              printable(record.name), printable(take_string(value, "kind", path))));
  }
  record.kind = *kind;
  record.xxh3 = take_string(value, "xxh3", path);
  const auto bytes = value.find("bytes");
  if (bytes == value.end() || !bytes->is_number_unsigned()) {
    corrupt(path, fmt::format("file {} has no size in bytes", printable(record.name)));
  }
  record.bytes = bytes->get<std::uint64_t>();
  if (record.kind == FileKind::changed) record.original = take_string(value, "original", path);
  return record;
}

void check_version(const json& value, const std::string& path) {
  const auto format = value.find("format");
  if (format == value.end() || !format->is_string()) {
    corrupt(path, "it is no manifest of a packed directory: it has no format");
  }
  if (format->get<std::string>() == container_version) return;
  corrupt(path,
          fmt::format("it is of format {}: this build reads format {} only. Unpack it with the "
                      "version that wrote it, and pack it again",
                      printable(format->get<std::string>()), container_version));
}

}  // namespace

const char* name(FileKind kind) {
  switch (kind) {
    case FileKind::packed:
      return "packed";
    case FileKind::copied:
      return "copied";
    case FileKind::changed:
      return "changed";
  }
  return "unknown";
}

std::string manifest_text(const Manifest& manifest) {
  ordered_json files = ordered_json::array();
  for (const FileRecord& record : manifest.files) {
    ordered_json file{{"name", record.name},
                      {"kind", name(record.kind)},
                      {"bytes", record.bytes},
                      {"xxh3", record.xxh3}};
    if (record.kind == FileKind::changed) file["original"] = record.original;
    files.push_back(std::move(file));
  }
  const ordered_json value{{std::string(manifest_seal_key), std::string(unsealed)},
                           {"format", std::string(container_version)},
                           {"directories", manifest.directories},
                           {"files", std::move(files)}};
  std::string text;
  try {
    text = value.dump(1) + "\n";
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorCode::invalid_argument,
                "a file's name is not UTF-8, which the manifest needs; rename it");
  }
  seal(text, manifest_seal_key);
  return text;
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object()) corrupt(path, "it is not a JSON object");
  check_version(value, path);
  if (const std::string problem = check_seal(text, manifest_seal_key); !problem.empty()) {
    corrupt(path, fmt::format("it was changed after it was written: {}", problem));
  }
  Manifest manifest;
  std::set<std::string> names;
  const auto add_name = [&](const std::string& name) {
    if (!names.insert(name).second) {
      corrupt(path, fmt::format("it names {} twice", printable(name)));
    }
  };
  const auto directories = value.find("directories");
  const auto files = value.find("files");
  if (directories == value.end() || !directories->is_array() || files == value.end() ||
      !files->is_array()) {
    corrupt(path, "it has no lists of directories and files");
  }
  for (const json& directory : *directories) {
    if (!directory.is_string() || !is_inside(directory.get<std::string>())) {
      corrupt(path, "a directory's name is no string that lies inside the directory");
    }
    manifest.directories.push_back(directory.get<std::string>());
    add_name(manifest.directories.back());
  }
  for (const json& file : *files) {
    manifest.files.push_back(parse_file(file, path));
    add_name(manifest.files.back().name);
  }
  return manifest;
}

Manifest read_manifest(const std::string& directory) {
  const std::string path = (fs::path(directory) / manifest_name).string();
  if (!fs::exists(path)) {
    corrupt(directory,
            fmt::format("it is not a packed directory: it has no {}. Where a Python program saved "
                        "it, `python -m slimgemm.seal DIRECTORY` writes one",
                        manifest_name));
  }
  return parse_manifest(read_text(path, manifest_bytes_max), path);
}

}  // namespace slimgemm::checkpoint
