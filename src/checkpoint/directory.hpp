// SPDX-License-Identifier: Apache-2.0
// Directories as packing sees them.
#pragma once

#include "checkpoint/buffer_pool.hpp"
#include "checkpoint/meter.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

struct Listing {
  std::vector<std::string> directories;  ///< relative, with slashes, sorted
  std::vector<std::string> files;
};

/// Everything below `root`; links are followed. Errors: io_error naming a link that leads nowhere
/// or back to a directory above it, and what is neither a file nor a directory.
Listing list_directory(const std::string& root);

/// root/name.
std::string join(const std::string& root, const std::string& name);

/// Copies a file as it is, complete on the disk when it returns; gives its XXH3 digits and size.
struct CopiedFile {
  std::string xxh3;
  std::uint64_t bytes = 0;
};
CopiedFile copy_file(const std::string& from, const std::string& to, Workspace& workspace,
                     Meter& meter);

/// XXH3 digits and size of a file; with another file to compare it with, the first byte at which
/// they differ is `difference`, or -1.
struct HashedFile {
  std::string xxh3;
  std::uint64_t bytes = 0;
  std::int64_t difference = -1;
};
HashedFile hash_file(const std::string& path, const std::string& compare_with, Workspace& workspace,
                     Meter& meter);

/// Throws Error(invalid_argument) where `needed` bytes are more than `available` at `path`.
void check_space(std::uint64_t needed, std::uint64_t available, const std::string& path);

/// Bytes that may be written to the file system of `path`, which exists.
std::uint64_t free_bytes(const std::string& path);

/// Throws Error(invalid_argument) unless `out` can be made: it does not exist, its folder does, and
/// it does not lie inside `in`.
void check_output(const std::string& in, const std::string& out);

/// Where the work for `out` goes on.
inline std::string working_name(const std::string& out) { return out + ".partial"; }

/// A directory that no other process works in while this lives.
class DirectoryLock {
 public:
  /// Errors: io_error.
  explicit DirectoryLock(const std::string& path);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace slimgemm::checkpoint
