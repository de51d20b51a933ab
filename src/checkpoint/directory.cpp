// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/directory.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/part_reader.hpp"
#include "checkpoint/xxh3.hpp"

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

// A file that is read front to back.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path)
      : path_(path), descriptor_(open_for_reading(path)), size_(file_size(descriptor_, path)) {}
  ~OpenFile() { close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  [[nodiscard]] std::uint64_t size() const { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> to) const {
    read_at(descriptor_, offset, to, path_);
  }
  // Gives `body` the file part by part, while the next one is read; returns its checksum.
  template <class Body>
  std::uint64_t for_parts(Workspace& workspace, const Body& body) const {
    BulkReader reader(descriptor_, path_);
    PartReader parts([&](const PartReader::Push& push) {
      read_runs(reader, {{0, size_, copied_part_bytes}}, workspace.inputs, push);
    });
    std::uint64_t xxh3 = 0;
    while (const auto part = parts.next()) {
      body(*part);
      xxh3 = part->xxh3;
    }
    return xxh3;
  }

 private:
  std::string path_;
  int descriptor_;
  std::uint64_t size_;
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

CopiedFile copy_file(const std::string& from, const std::string& to, Workspace& workspace,
                     Meter& meter) {
  const OpenFile file(from);
  OutputFile out(to, workspace.pieces);
  const std::uint64_t xxh3 = file.for_parts(workspace, [&](const Part& part) {
    out.write(part.bytes);
    meter.add(part.bytes.size());
  });
  out.finish();
  return {hex(xxh3), file.size()};
}

HashedFile hash_file(const std::string& path, const std::string& compare_with, Workspace& workspace,
                     Meter& meter) {
  const OpenFile file(path);
  std::unique_ptr<OpenFile> other;
  if (!compare_with.empty()) other = std::make_unique<OpenFile>(compare_with);
  HashedFile result{.xxh3 = "", .bytes = file.size()};
  const std::uint64_t common = other ? std::min(file.size(), other->size()) : 0;
  BufferPool::Lease other_buffer;
  if (common > 0) other_buffer = workspace.pieces.take(copied_part_bytes);
  const std::uint64_t xxh3 = file.for_parts(workspace, [&](const Part& part) {
    meter.add(part.bytes.size());
    if (result.difference >= 0 || part.offset >= common) return;
    const std::span<std::byte> theirs(
        other_buffer->data(), std::min<std::uint64_t>(part.bytes.size(), common - part.offset));
    other->read(part.offset, theirs);
    const auto at = std::mismatch(theirs.begin(), theirs.end(), part.bytes.begin()).first;
    if (at != theirs.end()) {
      result.difference = static_cast<std::int64_t>(part.offset) + (at - theirs.begin());
    }
  });
  if (other && result.difference < 0 && other->size() != result.bytes) {
    result.difference = static_cast<std::int64_t>(common);
  }
  result.xxh3 = hex(xxh3);
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
  // A file system without locks does without: no file that exists is written over.
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(descriptor_);
  fail(fmt::format("another process is working in {}: wait for it", path));
}

DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace slimgemm::checkpoint
