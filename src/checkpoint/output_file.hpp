// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "checkpoint/buffer_pool.hpp"
#include "checkpoint/piece_sink.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace slimgemm::checkpoint {

/// A file that is written under a working name and takes its final name when it is complete. While
/// it is open no other process can open it so. Bytes are made in a piece of memory; a thread of its
/// own writes the pieces that are full, past the system's cache where the file system can, while
/// the caller fills the next one.
class OutputFile : public PieceSink {
 public:
  /// Creates `path`; takes pieces from the pool, which lives longer. Errors: io_error, also where
  /// anything of that name exists. What is not finished is removed.
  OutputFile(const std::string& path, BufferPool& pieces);
  ~OutputFile() override;
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  /// The next bytes belong at `offset`. Cheap where that is where the last ones end.
  void seek(std::uint64_t offset);
  /// The same for a place before; all from there on, replacements too, is forgotten.
  void rewind(std::uint64_t offset);
  /// Errors of these: io_error, which may be that of earlier bytes.
  std::span<std::byte> reserve(std::uint64_t least, std::uint64_t most) override;
  void commit(std::uint64_t size) override;
  [[nodiscard]] std::uint64_t piece_max() const override;
  /// Bytes that were written with something else there before: a header, say, that is known last.
  void replace(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all of it is on the disk, and closes it. Errors: io_error.
  void finish();

 private:
  // Bytes [begin, end) of the buffer, whose first byte belongs at `offset`, a multiple of a page.
  struct Piece {
    BufferPool::Lease buffer;
    std::uint64_t offset = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  struct Replacement {
    std::uint64_t offset;
    std::vector<std::byte> bytes;
  };

  void submit(std::uint64_t end);
  void write_piece(const Piece& piece);
  void write_now(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes);
  void stop_thread();
  void work();
  void check_error();

  std::string path_;
  BufferPool& pieces_;
  int descriptor_ = -1;
  int direct_ = -1;        // the same file past the cache, or -1
  Piece piece_;            // that is filled
  std::uint64_t end_ = 0;  // of the file, as far as it was submitted
  std::vector<Replacement> replacements_;
  std::mutex mutex_;
  std::condition_variable work_there_;
  std::deque<Piece> jobs_;
  bool stop_ = false;
  std::exception_ptr error_;  // of the thread
  std::thread thread_;
};

}  // namespace slimgemm::checkpoint
