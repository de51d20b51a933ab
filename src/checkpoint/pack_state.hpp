// SPDX-License-Identifier: Apache-2.0
// What a run that was interrupted has finished: a file in OUT.partial that is written anew after
// every file that is complete.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "checkpoint/directory.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_files.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace slimgemm::checkpoint {

inline constexpr const char* state_name = "slimgemm.partial.json";

/// By what a source file is known again.
struct SourceFacts {
  std::uint64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::int64_t changed_ns = 0;  ///< of the inode: no tool sets it back
  std::uint64_t inode = 0;
  std::string header_xxh3;  ///< of the header's text; "" for files that are copied

  friend bool operator==(const SourceFacts&, const SourceFacts&) = default;
};

/// A file that is complete.
struct FinishedFile {
  SourceFacts source;
  FileRecord record = {};
  ShardFacts shard = {};     ///< packed
  PackSummary summary = {};  ///< packed: the sums of this file alone
};

struct PackState {
  std::string options;  ///< what the bytes depend on, as text
  std::map<std::string, FinishedFile> files;
};

/// `in`: the source directory.
std::string options_text(const std::string& in, const PackCheckpointOptions& options);
/// The same of unpacking `in`, whose manifest has that checksum.
std::string unpack_options_text(const std::string& in, const std::string& manifest_xxh3);

/// Size, times and inode of a file. Errors: io_error.
SourceFacts source_facts(const std::string& path);

/// The state that is in the directory, or nothing where there is none that can be read.
std::optional<PackState> read_state(const std::string& directory);
void write_state(const std::string& directory, const PackState& state);

/// The directory in which a run works for its output: its lock, and the files that an interrupted
/// run with the same options finished in it.
struct WorkingDirectory {
  std::unique_ptr<DirectoryLock> lock;
  PackState state;
};

/// Makes working_name(out), or takes over what an interrupted run left: of its files those stay
/// that `is_reusable`, all else is removed, links not followed. `needed`: bytes that the run will
/// write, those of an earlier one included. Errors: invalid_argument if no run of ours left it, it
/// is `in`, or space is short; io_error.
WorkingDirectory open_working(const std::string& in, const std::string& out,
                              const std::string& options, std::uint64_t needed,
                              const std::function<bool(const FinishedFile&)>& is_reusable);

/// True if what `finished` says is still so: the source is the same and the file in `directory` is
/// the one that was written (size, and of a packed file the header's checksum).
bool is_finished(const FinishedFile& finished, const SourceFacts& source,
                 const std::string& directory);

}  // namespace slimgemm::checkpoint
