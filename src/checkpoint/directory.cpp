// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/xxh3.hpp"
#include "support/aligned_buffer.hpp"

#include <slimgemm/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 24;

// Links can lead to one directory in many ways, and two on each of 30 levels in a billion.
constexpr int ways_max = 8;

struct Visited {
  std::set<fs::path> above;
  std::map<fs::path, int> ways;
};

void list_below(const fs::path& root, const std::string& relative, Visited& visited,
                Listing& listing) {
  const fs::path folder = root / relative;
  const fs::path real = fs::canonical(folder);
  if (!visited.above.insert(real).second) {
    fail(fmt::format("{} leads back to a directory above it", folder.string()));
  }
  if (++visited.ways[real] > ways_max) {
    fail(fmt::format("links lead to {} in more than {} ways; each would be a copy of it",
                     real.string(), ways_max));
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const std::string below = (fs::path(relative) / name).generic_string();
    const fs::file_status status = fs::status(root / below);
    if (fs::is_directory(status)) {
      listing.directories.push_back(below);
      list_below(root, below, visited, listing);
    } else if (fs::is_regular_file(status)) {
      listing.files.push_back(below);
    } else {
      fail(fmt::format(
          "{} is {}: it can't be copied", (root / below).string(),
          fs::exists(status) ? "neither a file nor a directory" : "a link that leads nowhere"));
    }
  }
  visited.above.erase(real);
}

// A file that is read front to back, in pieces.
class PieceReader {
 public:
  explicit PieceReader(const std::string& path)
      : path_(path), descriptor_(open_for_reading(path)), ahead_(descriptor_, size()) {}
  ~PieceReader() { close(descriptor_); }
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  [[nodiscard]] std::uint64_t size() const { return file_size(descriptor_, path_); }
  void read(std::uint64_t offset, std::span<std::byte> to) {
    ahead_.advance(offset);
    read_at(descriptor_, offset, to, path_);
  }

 private:
  std::string path_;
  int descriptor_;
  ReadAhead ahead_;
};

}  // namespace

std::string join(const std::string& root, const std::string& name) {
  return (fs::path(root) / name).string();
}

Listing list_directory(const std::string& root) {
  Listing listing;
  Visited visited;
  try {
    list_below(root, "", visited, listing);
  } catch (const fs::filesystem_error& error) {
    fail(fmt::format("cannot list {}: {}", root, error.what()));
  }
  return listing;
}

CopiedFile copy_file(const std::string& from, const std::string& to, Meter& meter) {
  PieceReader reader(from);
  OutputFile out(to);
  Xxh3 xxh3;
  const std::uint64_t size = reader.size();
  AlignedBuffer buffer(std::min(piece_bytes, size));
  for (std::uint64_t offset = 0; offset < size; offset += buffer.size()) {
    const std::span<std::byte> piece(buffer.data(),
                                     std::min<std::uint64_t>(buffer.size(), size - offset));
    reader.read(offset, piece);
    xxh3.update(piece);
    out.write_at(offset, piece);
    meter.add(piece.size());
  }
  out.finish();
  return {hex(xxh3.digest()), size};
}

HashedFile hash_file(const std::string& path, const std::string& compare_with, Meter& meter) {
  PieceReader reader(path);
  std::unique_ptr<PieceReader> other;
  if (!compare_with.empty()) other = std::make_unique<PieceReader>(compare_with);
  Xxh3 xxh3;
  HashedFile result{.xxh3 = "", .bytes = reader.size()};
  const std::uint64_t common = other ? std::min(result.bytes, other->size()) : 0;
  AlignedBuffer buffer(std::min(piece_bytes, result.bytes));
  AlignedBuffer other_buffer(std::min(piece_bytes, common));
  for (std::uint64_t offset = 0; offset < result.bytes; offset += buffer.size()) {
    const std::span<std::byte> piece(buffer.data(),
                                     std::min<std::uint64_t>(buffer.size(), result.bytes - offset));
    reader.read(offset, piece);
    xxh3.update(piece);
    meter.add(piece.size());
    if (result.difference >= 0 || offset >= common) continue;
    const std::span<std::byte> theirs(other_buffer.data(),
                                      std::min<std::uint64_t>(piece.size(), common - offset));
    other->read(offset, theirs);
    const auto at = std::mismatch(theirs.begin(), theirs.end(), piece.begin()).first;
    if (at != theirs.end()) {
      result.difference = static_cast<std::int64_t>(offset) + (at - theirs.begin());
    }
  }
  if (other && result.difference < 0 && other->size() != result.bytes) {
    result.difference = static_cast<std::int64_t>(common);
  }
  result.xxh3 = hex(xxh3.digest());
  return result;
}

void check_space(std::uint64_t needed, std::uint64_t available, const std::string& path) {
  if (needed <= available) return;
  refuse(fmt::format("{} bytes are needed, but only {} are free on the file system of {}", needed,
                     available, path));
}

std::uint64_t free_bytes(const std::string& path) {
  struct statvfs facts {};
  if (statvfs(path.c_str(), &facts) != 0) {
    fail(fmt::format("cannot tell the free space at {}: {}", path, std::strerror(errno)));
  }
  return std::uint64_t{facts.f_bavail} * facts.f_frsize;
}

void check_output(const std::string& in, const std::string& out) {
  if (out.empty()) refuse("the output has no name");
  if (fs::exists(fs::symlink_status(out))) {
    refuse(fmt::format("{} exists: name another output, or remove it", out));
  }
  const fs::path folder = fs::absolute(out).parent_path();
  if (!fs::is_directory(folder)) {
    refuse(fmt::format("the folder of {} does not exist: make it first", out));
  }
  if (!fs::is_directory(in)) return;
  const fs::path inside = fs::canonical(in);
  const fs::path target = fs::canonical(folder);
  if (std::mismatch(inside.begin(), inside.end(), target.begin(), target.end()).first ==
      inside.end()) {
    refuse(fmt::format("{} lies inside {}, which is only read: name another output", out, in));
  }
}

DirectoryLock::DirectoryLock(const std::string& path)
    : descriptor_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ < 0) fail(fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  close(descriptor_);
  fail(fmt::format("another process is working in {}: wait for it", path));
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace slimgemm::checkpoint
