// SPDX-License-Identifier: Apache-2.0
// Files by descriptor: whole reads and writes at an offset, with errors that name the file.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>

namespace slimgemm::checkpoint {

/// What goes past the system's cache lies at multiples of this, in the file and in memory.
inline constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t floor_page(std::uint64_t value) { return value / page_bytes * page_bytes; }

/// A descriptor of the file, which must be a regular file. Errors: io_error naming path and reason.
int open_for_reading(const std::string& path);

/// Errors: io_error.
std::uint64_t file_size(int descriptor, const std::string& path);

/// Reads all of `to` from byte `offset`; large reads are split over threads.
/// Errors: io_error, also where the file ends before.
void read_at(int descriptor, std::uint64_t offset, std::span<std::byte> to,
             const std::string& path);

/// The whole file as text. Errors: io_error; corrupt_data where it has more than `bytes_max` bytes.
std::string read_text(const std::string& path, std::uint64_t bytes_max);

/// Reads ahead of the reader into the system's cache, in a thread of its own, so that the disk
/// works while the processor does.
class ReadAhead {
 public:
  /// How far ahead; the memory is the system's cache, not the process's own.
  static constexpr std::uint64_t window_bytes = std::uint64_t{1} << 28;

  ReadAhead(int descriptor, std::uint64_t file_bytes);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// The reader is at byte `offset`: bytes from there on are wanted.
  void advance(std::uint64_t offset);

 private:
  void work();

  int descriptor_;
  std::uint64_t file_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t position_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

/// Renames a file or directory that is complete; where `to` exists nothing changes. Both names are
/// on the disk when it returns. Errors: io_error.
void rename_into_place(const std::string& from, const std::string& to);

/// The same for file systems that know no rename which replaces nothing, by two steps: a link and
/// its removal for a file, an empty directory that is replaced for a directory.
void rename_without_flag(const std::string& from, const std::string& to);

/// Writes `text` under `path` by way of a working name beside it; replaces what was there.
/// Errors: io_error.
void write_text(const std::string& path, const std::string& text);

}  // namespace slimgemm::checkpoint
