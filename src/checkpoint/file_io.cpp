// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_io.hpp"

#include "support/parallel.hpp"

#include <slimgemm/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace slimgemm::checkpoint {
namespace {

constexpr std::int64_t chunk_bytes = std::int64_t{1} << 22;

[[noreturn]] void fail(const std::string& what) { throw Error(ErrorCode::io_error, what); }

std::string reason() { return std::strerror(errno); }

}  // namespace

int open_for_reading(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
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

}  // namespace slimgemm::checkpoint
