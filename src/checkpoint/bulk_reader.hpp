// SPDX-License-Identifier: Apache-2.0
// Long runs of a file. What is in the system's cache is copied from there; the rest comes from the
// disk straight into place, which spares the cache's fresh pages and the copy.
#pragma once

#include "checkpoint/file_io.hpp"
#include "support/aligned_buffer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace slimgemm::checkpoint {

class BulkReader {
 public:
  /// Given the bytes piece by piece as they arrive, in order, while they are in the processor's
  /// cache.
  using Each = std::function<void(std::span<const std::byte>)>;
  /// By how much a buffer is to be larger than what is read into it.
  static constexpr std::uint64_t slack_bytes = 2 * page_bytes;

  /// `descriptor` stays the caller's and open. `path` is for messages.
  BulkReader(int descriptor, std::string path);
  ~BulkReader();
  BulkReader(const BulkReader&) = delete;
  BulkReader& operator=(const BulkReader&) = delete;

  /// Reads `size` bytes from byte `offset` into some place in `buffer` that is a multiple of
  /// `alignment`, a power of two up to 4096. Errors: io_error, also where the file ends before.
  std::span<std::byte> read(AlignedBuffer& buffer, std::uint64_t offset, std::uint64_t size,
                            std::uint64_t alignment, const Each& each);

 private:
  [[nodiscard]] bool is_cached(std::uint64_t offset, std::uint64_t size) const;
  void read_part(std::uint64_t offset, std::span<std::byte> to, bool fits);
  bool read_direct(std::uint64_t offset, std::span<std::byte> to);

  int descriptor_;
  std::string path_;
  int direct_ = -1;                     // the same file past the cache, or -1
  std::atomic<bool> no_direct_{false};  // the file system cannot
  void* map_ = nullptr;                 // only asked what is in the cache, never read
  std::uint64_t mapped_bytes_ = 0;
};

}  // namespace slimgemm::checkpoint
