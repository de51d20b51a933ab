// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_io.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/output_file.hpp"
#include "support/parallel.hpp"

#include <slimgemm/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

namespace slimgemm::checkpoint {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 22;

}  // namespace

int open_for_reading(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail(fmt::format("cannot open {}: {}", path, reason()));
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(descriptor);
    fail(fmt::format("cannot read {}: it is not a regular file", path));
  }
  return descriptor;
}

std::uint64_t file_size(int descriptor, const std::string& path) {
  struct stat facts {};
  if (fstat(descriptor, &facts) != 0) {
    fail(fmt::format("cannot tell the size of {}: {}", path, reason()));
  }
  return static_cast<std::uint64_t>(facts.st_size);
}

void read_at(int descriptor, std::uint64_t offset, std::span<std::byte> to,
             const std::string& path) {
  const auto size = static_cast<std::int64_t>(to.size());
  parallel_for(size, chunk_bytes, 0, [&](std::int64_t begin, std::int64_t end) {
    while (begin < end) {
      const auto wanted = static_cast<std::size_t>(std::min(end - begin, chunk_bytes));
      const ssize_t got = pread(descriptor, to.data() + begin, wanted,
                                static_cast<off_t>(offset) + static_cast<off_t>(begin));
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        fail(fmt::format("cannot read {} bytes at offset {} of {}: {}", wanted,
                         offset + static_cast<std::uint64_t>(begin), path,
                         got < 0 ? reason() : "the file ends before"));
      }
      begin += got;
    }
  });
}

std::string read_text(const std::string& path, std::uint64_t bytes_max) {
  const int descriptor = open_for_reading(path);
  try {
    const std::uint64_t size = file_size(descriptor, path);
    if (size > bytes_max) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{} has {} bytes, more than {}", path, size, bytes_max));
    }
    std::string text(size, '\0');
    read_at(descriptor, 0, std::as_writable_bytes(std::span(text)), path);
    close(descriptor);
    return text;
  } catch (...) {
    close(descriptor);
    throw;
  }
}

ReadAhead::ReadAhead(int descriptor, std::uint64_t file_bytes)
    : descriptor_(descriptor), file_bytes_(file_bytes), thread_([this] { work(); }) {}

ReadAhead::~ReadAhead() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void ReadAhead::advance(std::uint64_t offset) {
  {
    const std::lock_guard lock(mutex_);
    position_ = std::max(position_, offset);
  }
  wake_.notify_one();
}

void ReadAhead::work() {
  std::uint64_t done = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] {
      return stop_ || std::max(done, position_) < std::min(position_ + window_bytes, file_bytes_);
    });
    if (stop_) return;
    const std::uint64_t begin = std::max(done, position_);
    const std::uint64_t end = std::min(
        {begin + static_cast<std::uint64_t>(chunk_bytes), position_ + window_bytes, file_bytes_});
    lock.unlock();
    posix_fadvise(descriptor_, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                  POSIX_FADV_WILLNEED);
    lock.lock();
    done = end;
  }
}

void rename_without_flag(const std::string& from, const std::string& to) {
  const auto refuse_rename = [&](int error) {
    fail(fmt::format("cannot rename {} to {}: {}", from, to, std::strerror(error)));
  };
  if (std::filesystem::is_directory(std::filesystem::symlink_status(from))) {
    // A directory replaces an empty one alone: here that of this call, and only while it is empty.
    if (mkdir(to.c_str(), 0777) != 0) refuse_rename(errno);
    if (std::rename(from.c_str(), to.c_str()) == 0) return;
    const int error = errno;
    rmdir(to.c_str());
    refuse_rename(error);
  }
  if (link(from.c_str(), to.c_str()) == 0) {
    if (unlink(from.c_str()) != 0) fail(fmt::format("cannot remove {}: {}", from, reason()));
    return;
  }
  // EPERM and the like: a file system without hard links, either.
  if (errno == EEXIST) refuse_rename(EEXIST);
  const int descriptor = open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) refuse_rename(errno);
  close(descriptor);
  if (std::rename(from.c_str(), to.c_str()) == 0) return;
  const int error = errno;
  unlink(to.c_str());
  refuse_rename(error);
}

void rename_into_place(const std::string& from, const std::string& to) {
  if (renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != EOPNOTSUPP) {
      fail(fmt::format("cannot rename {} to {}: {}", from, to, reason()));
    }
    rename_without_flag(from, to);  // NFS, for one, can't do it at one go
  }
  const std::string folder = std::filesystem::absolute(to).parent_path().string();
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

void write_text(const std::string& path, const std::string& text) {
  const std::string working = path + ".new";
  Workspace workspace;
  OutputFile file(working, workspace.pieces);
  file.write(std::as_bytes(std::span(text)));
  file.finish();
  if (std::rename(working.c_str(), path.c_str()) != 0) {
    fail(fmt::format("cannot rename {} to {}: {}", working, path, reason()));
  }
}

}  // namespace slimgemm::checkpoint
