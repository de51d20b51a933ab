// SPDX-License-Identifier: Apache-2.0
// Any bytes as a packed safetensors file, a manifest or an index. A packed file that verifies
// unpacks into a sound file with the header that it carries; every other is refused.
//
// Input: one byte that says what the rest is (the first letter of: file, manifest, index, config).
// Checksums of headers and manifests are made right first, so that the fuzzer comes past them; a
// capital letter leaves them as they are.
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_files.hpp"
#include "checkpoint/packed_file.hpp"
#include "checkpoint/xxh3.hpp"
#include "unit/codec_test_support.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

namespace {

using namespace slimgemm;
using namespace slimgemm::checkpoint;

void require(bool condition) {
  if (!condition) std::abort();
}

// A file in memory that has a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : descriptor_(memfd_create("fuzz", 0)) {
    require(descriptor_ >= 0);
    require(write(descriptor_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", descriptor_); }

 private:
  int descriptor_;
};

// The name of a file that is yet to be written; it is removed in the end.
class NewFile {
 public:
  NewFile() : path_((folder() / fmt::format("slimgemm_fuzz_{}", getpid())).string()) {
    std::filesystem::remove(path_);
  }
  ~NewFile() { std::remove(path_.c_str()); }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  static std::filesystem::path folder() {
    const std::filesystem::path memory = "/dev/shm";
    return std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
  }
  std::string path_;
};

// Puts the right checksum under `key`, if there is one.
void reseal(std::string& text, std::string_view key) {
  const std::string name = fmt::format("\"{}\":\"", key);
  const std::size_t at = text.find(name);
  if (at == std::string::npos || at + name.size() + unsealed.size() > text.size()) return;
  text.replace(at + name.size(), unsealed.size(), unsealed);
  try {
    seal(text, key);
  } catch (const Error&) {
  }
}

// Makes the checksums of the header and of the packed matrices right.
void reseal_file(std::string& bytes) {
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > bytes.size() - sizeof(header_bytes)) return;
  const std::size_t data_begin = sizeof(header_bytes) + header_bytes;
  std::string head = bytes.substr(0, data_begin);
  reseal(head, header_seal_key);
  bytes.replace(0, data_begin, head);
  for (std::size_t at = bytes.find("SLIMPACK", data_begin); at != std::string::npos;
       at = bytes.find("SLIMPACK", at + 1)) {
    format::Header header{};
    if (bytes.size() - at < sizeof(header)) return;
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    if (header.total_bytes < sizeof(header) || header.total_bytes > bytes.size() - at) continue;
    test::Bytes matrix(header.total_bytes);
    std::memcpy(matrix.data(), bytes.data() + at, matrix.size());
    test::seal(matrix);
    std::memcpy(bytes.data() + at, matrix.data(), matrix.size());
  }
}

void check_file(std::string bytes, bool is_resealed) {
  if (is_resealed) reseal_file(bytes);
  const MemoryFile file(bytes);
  Meter meter(nullptr);
  const VerifySummary summary = verify_checkpoint(file.path(), "", meter);
  const PackedFile packed(file.path());
  const NewFile out;
  Workspace workspace;
  if (!summary.problems.empty()) {
    bool refused = false;
    try {
      unpack_file(packed, out.path(), workspace, meter);
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::corrupt_data;
    }
    require(refused);
    return;
  }
  unpack_file(packed, out.path(), workspace, meter);
  const SafetensorsFile original(out.path());
  require(original.file_bytes() == packed.original_bytes());
  require(original.header_text() == packed.original_header_text());
  VerifySummary against;
  verify_file({.path = file.path(), .label = "x", .against = out.path(), .header_xxh3 = ""},
              workspace, meter, against);
  require(against.problems.empty());
}

void check_text(char kind, std::string text) {
  if (kind == 'm') reseal(text, manifest_seal_key);
  if (kind == 'm' || kind == 'M') {
    const Manifest manifest = parse_manifest(text, "fuzzed");
    const Manifest again = parse_manifest(manifest_text(manifest), "again");
    require(again.files.size() == manifest.files.size());
    return;
  }
  if (kind == 'i') {
    std::map<std::string, ShardFacts> shards;
    for_each_weight(text, "fuzzed", [&](const std::string& tensor, const std::string& shard) {
      shards[shard].renamed.emplace(tensor, packed_name(tensor));
      shards[shard].tensor_bytes = 1;
    });
    const std::string changed = changed_index(text, shards);
    for_each_weight(changed, "again", [&](const std::string& tensor, const std::string&) {
      require(tensor.ends_with("_packed"));
    });
    return;
  }
  has_tied_embeddings(text);
  if (const auto changed = changed_config(text, "fuzzed")) {
    require(changed->find("slimgemm") != std::string::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const char kind = static_cast<char>(data[0]);
  std::string rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (kind == 'f' || kind == 'F') {
      check_file(std::move(rest), kind == 'f');
    } else {
      check_text(kind, std::move(rest));
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data || error.code() == ErrorCode::invalid_argument);
  }
  return 0;
}
