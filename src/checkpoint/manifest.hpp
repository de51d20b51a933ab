// SPDX-License-Identifier: Apache-2.0
// slimgemm.json of a packed directory: every file with its size and checksum, and the original text
// of those that packing changed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::checkpoint {

inline constexpr const char* manifest_name = "slimgemm.json";
inline constexpr std::string_view manifest_seal_key = "manifest_xxh3";

enum class FileKind {
  packed,   ///< a packed safetensors file
  copied,   ///< as it was
  changed,  ///< config.json or an index: its original text is in the manifest
};

struct FileRecord {
  std::string name;  ///< relative to the directory, with slashes
  FileKind kind = FileKind::copied;
  std::uint64_t bytes = 0;
  std::string xxh3;           ///< 16 digits: of the file; of a packed one, its header's seal
  std::string original = {};  ///< changed: the original text
};

struct Manifest {
  std::vector<std::string> directories;  ///< below the top one
  std::vector<FileRecord> files;
};

std::string manifest_text(const Manifest& manifest);

/// Errors: corrupt_data naming what is wrong: not JSON, of another version (by its number), a wrong
/// or missing checksum, a name that leads out of the directory, a name twice.
Manifest parse_manifest(const std::string& text, const std::string& path);

/// Reads slimgemm.json of the directory. Errors: as above; corrupt_data where there is none.
Manifest read_manifest(const std::string& directory);

const char* name(FileKind kind);

}  // namespace slimgemm::checkpoint
