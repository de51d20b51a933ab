// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/aligned_buffer.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace slimgemm::checkpoint {

/// A file that is written under a working name and takes its final name when it is complete. While
/// it is open no other process can open it so. Large writes go to the disk from threads of its own,
/// past the system's cache where the file system can, while the caller goes on.
class OutputFile {
 public:
  /// Memory for what is on its way, taken as it is needed: enough for the packed form of most
  /// matrices, so that the next one is packed meanwhile.
  static constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 23;
  static constexpr std::size_t chunks_max = 24;

  /// Creates `path`. Errors: io_error, also where anything of that name exists. What is not
  /// finished is removed.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// Takes the bytes that belong at `offset`. Errors: io_error, which may be that of earlier bytes.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all of it is on the disk, and closes it. Errors: io_error.
  void finish();

 private:
  struct Job {
    AlignedBuffer* buffer;
    std::uint64_t offset;
    std::uint64_t size;
  };

  void write_now(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes);
  void write_later(std::uint64_t offset, std::span<const std::byte> bytes);
  AlignedBuffer* take_buffer();
  void start_threads();
  void stop_threads();
  void work();
  void check_error();

  std::string path_;
  int descriptor_ = -1;
  int direct_ = -1;                    // the same file past the cache, or -1
  std::deque<AlignedBuffer> buffers_;  // where they lie does not change
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable work_there_;
  std::condition_variable buffer_free_;
  std::deque<Job> jobs_;
  std::vector<AlignedBuffer*> free_;
  bool stop_ = false;
  std::string error_;
};

}  // namespace slimgemm::checkpoint
