// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/bulk_reader.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"

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

// One request to the disk, and what is looked up in the system's cache at a time.
constexpr std::uint64_t request_bytes = std::uint64_t{1} << 22;
// Less than this comes by way of the system's cache, which reads ahead.
constexpr std::uint64_t direct_read_min = std::uint64_t{1} << 20;
// A copy from the system's cache: it is still in the processor's when it is looked at.
constexpr std::uint64_t hot_bytes = std::uint64_t{1} << 19;

}  // namespace

BulkReader::BulkReader(int descriptor, std::string path)
    : descriptor_(descriptor), path_(std::move(path)) {
#if defined(O_DIRECT)
  // By the descriptor, not by the name: another file may have that by now.
  direct_ =
      open(fmt::format("/proc/self/fd/{}", descriptor).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
#endif
  if (direct_ < 0) return;
  mapped_bytes_ = file_size(descriptor, path_);
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
  for (std::uint64_t done = 0; done < size;) {
    // Up to a multiple of what is requested at a time.
    const std::uint64_t at = offset + done;
    const std::uint64_t end = std::min(offset + size, (at / request_bytes + 1) * request_bytes);
    const std::span<std::byte> part = all.subspan(done, end - at);
    if (fits && direct_ >= 0 && !is_cached(at, part.size()) && read_direct(at, part)) {
      each(part);
    } else {
      read_cached(at, part, each);
    }
    done += part.size();
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

void BulkReader::read_cached(std::uint64_t offset, std::span<std::byte> to,
                             const Each& each) const {
  for (std::uint64_t done = 0; done < to.size();) {
    const std::span<std::byte> piece =
        to.subspan(done, std::min<std::uint64_t>(hot_bytes, to.size() - done));
    read_at(descriptor_, offset + done, piece, path_);
    each(piece);
    done += piece.size();
  }
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
    if (got < 0 && errno == EINVAL) close(std::exchange(direct_, -1));
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
