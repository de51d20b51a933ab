// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/bulk_reader.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "support/parallel.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace slimgemm::checkpoint {
namespace {

// One request to the disk or copy from the system's cache.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 21;
// Requests at a time, and what they read together.
constexpr int requests_at_once = 4;
constexpr std::uint64_t block_bytes = requests_at_once * request_bytes;
// Less than this comes by way of the system's cache, which reads ahead.
constexpr std::uint64_t direct_read_min = std::uint64_t{1} << 20;

}  // namespace

BulkReader::BulkReader(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)), mapped_bytes_(file_size(descriptor, path_)) {
#if defined(O_DIRECT)
  // By the descriptor, not by the name: another file may have that by now.
  direct_ =
      open(fmt::format("/proc/self/fd/{}", descriptor).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
#endif
  if (direct_ < 0) return;
  void* const map = mapped_bytes_ == 0
                        ? MAP_FAILED
                        : mmap(nullptr, mapped_bytes_, PROT_READ, MAP_SHARED, descriptor, 0);
  if (map != MAP_FAILED) map_ = map;
}

BulkReader::~BulkReader() {
  if (map_ != nullptr) munmap(map_, mapped_bytes_);
  if (direct_ >= 0) close(direct_);
}

std::span<std::byte> BulkReader::read(AlignedBuffer& buffer, std::uint64_t offset,
                                      std::uint64_t size, std::uint64_t alignment,
                                      const Each& each) {
  // The disk gives whole pages: a byte must lie in memory where it lies in its page of the file.
  const bool fits = offset % alignment == 0 && size >= direct_read_min &&
                    reinterpret_cast<std::uintptr_t>(buffer.data()) % page_bytes == 0;
  const std::span<std::byte> all(buffer.data() + (fits ? offset % page_bytes : 0), size);
  const std::uint64_t end = offset + size;
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t block_end = std::min(end, (at / block_bytes + 1) * block_bytes);
    const std::uint64_t first = at / request_bytes;
    const std::uint64_t last = (block_end - 1) / request_bytes;
    const auto read_requests = [&](std::int64_t begin, std::int64_t stop) {
      for (auto i = begin; i < stop; ++i) {
        const std::uint64_t request = (first + static_cast<std::uint64_t>(i)) * request_bytes;
        const std::uint64_t from = std::max(at, request);
        const std::uint64_t to = std::min(block_end, request + request_bytes);
        read_part(from, all.subspan(from - offset, to - from), fits);
      }
    };
    parallel_for_waiting(static_cast<std::int64_t>(last - first + 1), requests_at_once,
                         read_requests);
    each(all.subspan(at - offset, block_end - at));
    at = block_end;
  }
  return all;
}

// True where most of it is, or nobody knows.
bool BulkReader::is_cached(std::uint64_t offset, std::uint64_t size) const {
  if (map_ == nullptr || offset + size > mapped_bytes_) return true;
  const std::uint64_t begin = floor_page(offset);
  const std::uint64_t pages = (offset + size - begin + page_bytes - 1) / page_bytes;
  std::vector<unsigned char> there(pages);
  if (mincore(static_cast<std::byte*>(map_) + begin, offset + size - begin, there.data()) != 0) {
    return true;
  }
  const auto cached = std::count_if(there.begin(), there.end(),
                                    [](unsigned char page) { return (page & 1U) != 0; });
  return 2 * static_cast<std::uint64_t>(cached) >= pages;
}

void BulkReader::read_part(std::uint64_t offset, std::span<std::byte> to, bool fits) {
  if (fits && direct_ >= 0 && !no_direct_ && !is_cached(offset, to.size()) &&
      read_direct(offset, to)) {
    return;
  }
  read_at(descriptor_, offset, to, path_);
}

// False where that is not possible: not on this file system, or past the file's end.
bool BulkReader::read_direct(std::uint64_t offset, std::span<std::byte> to) {
  const std::uint64_t begin = floor_page(offset);
  const std::uint64_t end = floor_page(offset + to.size() + page_bytes - 1);
  std::byte* const target = to.data() - (offset - begin);
  std::uint64_t at = begin;
  while (at < offset + to.size()) {
    const ssize_t got = pread(direct_, target + (at - begin), end - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EINVAL) no_direct_ = true;
    // What is wrong, if it is not only this way of reading, the other way will say.
    if (got <= 0 || (at + static_cast<std::uint64_t>(got) < offset + to.size() &&
                     static_cast<std::uint64_t>(got) % page_bytes != 0)) {
      return false;
    }
    at += static_cast<std::uint64_t>(got);
  }
  return true;
}

}  // namespace slimgemm::checkpoint
