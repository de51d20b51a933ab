// SPDX-License-Identifier: Apache-2.0
// Whole pages go to the disk with O_DIRECT, from the memory in which they were made: fresh pages of
// the system's cache would cost more time than packing does. A piece therefore lies in memory as it
// lies in the pages of the file, and what is left of its last page begins the next one. The odd
// bytes where the output begins, ends or jumps take the usual way.
#include "checkpoint/output_file.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"

#include <slimgemm/error.hpp>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace slimgemm::checkpoint {
namespace {

// Below this the usual way is as good.
constexpr std::uint64_t direct_write_min = std::uint64_t{1} << 18;

/// Why a file that is to be new is there already.
std::string why_it_exists(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const bool locked =
      descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (descriptor >= 0) close(descriptor);
  return locked ? "another process is writing it"
                : "it exists; an interrupted run left it, or it is yours: move it away";
}

}  // namespace

OutputFile::OutputFile(const std::string& path, BufferPool& pieces) : path_(path), pieces_(pieces) {
  // Never a file that is there, nor one behind a link: it may be the input, or somebody else's.
  descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail(
        fmt::format("cannot write {}: {}", path, errno == EEXIST ? why_it_exists(path) : reason()));
  }
  // Tells others that it is being written, for why_it_exists(); who asks holds it for a moment. A
  // file system without locks does without.
  while (flock(descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
#if defined(O_DIRECT)
  // By the descriptor, not by the name: another file may have that by now.
  direct_ =
      open(fmt::format("/proc/self/fd/{}", descriptor_).c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
#endif
}

OutputFile::~OutputFile() {
  stop_thread();
  if (direct_ >= 0) close(direct_);
  if (descriptor_ < 0) return;
  unlink(path_.c_str());  // not finished
  close(descriptor_);
}

std::uint64_t OutputFile::piece_max() const { return Workspace::piece_bytes - page_bytes; }

void OutputFile::seek(std::uint64_t offset) {
  if (piece_.buffer && piece_.offset + piece_.end == offset) return;
  submit(piece_.end);
  piece_.offset = floor_page(offset);
  piece_.begin = piece_.end = offset - piece_.offset;
}

void OutputFile::rewind(std::uint64_t offset) {
  std::erase_if(replacements_, [&](const Replacement& part) { return part.offset >= offset; });
  seek(offset);
  end_ = offset;
}

std::span<std::byte> OutputFile::reserve(std::uint64_t least, std::uint64_t most) {
  if (piece_.buffer && Workspace::piece_bytes - piece_.end < least) {
    submit(std::max(piece_.begin, floor_page(piece_.end)));
  }
  if (!piece_.buffer) piece_.buffer = pieces_.take(Workspace::piece_bytes);
  return {piece_.buffer->data() + piece_.end, std::min(most, Workspace::piece_bytes - piece_.end)};
}

void OutputFile::commit(std::uint64_t size) { piece_.end += size; }

// Has the piece written up to byte `end` of its buffer; what follows begins the next one.
void OutputFile::submit(std::uint64_t end) {
  check_error();
  if (!piece_.buffer || end == piece_.begin) {
    piece_.buffer = {};
    return;
  }
  end_ = std::max(end_, piece_.offset + end);
  Piece next;
  next.offset = piece_.offset + floor_page(end);
  next.begin = end - floor_page(end);
  next.end = next.begin + piece_.end - end;
  if (piece_.end != end) {
    next.buffer = pieces_.take(Workspace::piece_bytes);
    std::memcpy(next.buffer->data() + next.begin, piece_.buffer->data() + end, piece_.end - end);
  }
  piece_.end = end;
  if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(piece_));
  }
  work_there_.notify_one();
  piece_ = std::move(next);
}

void OutputFile::replace(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (piece_.buffer && offset >= piece_.offset + piece_.begin &&
      offset + bytes.size() <= piece_.offset + piece_.end) {
    std::memcpy(piece_.buffer->data() + (offset - piece_.offset), bytes.data(), bytes.size());
    return;
  }
  replacements_.push_back({offset, {bytes.begin(), bytes.end()}});
}

void OutputFile::write_now(int descriptor, std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = pwrite(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EINVAL && descriptor != descriptor_) {
      descriptor = descriptor_;  // this file system has no such way
      continue;
    }
    if (done <= 0) {
      fail(fmt::format("cannot write {} bytes at offset {} of {}: {}", bytes.size(), offset, path_,
                       reason()));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

void OutputFile::write_piece(const Piece& piece) {
  const std::span<const std::byte> all(piece.buffer->data(), piece.end);
  const std::uint64_t begin = floor_page(piece.begin + page_bytes - 1);
  const std::uint64_t end = floor_page(piece.end);
  if (direct_ < 0 || end < begin + direct_write_min) {
    write_now(descriptor_, piece.offset + piece.begin, all.subspan(piece.begin));
    return;
  }
  write_now(descriptor_, piece.offset + piece.begin, all.subspan(piece.begin, begin - piece.begin));
  write_now(direct_, piece.offset + begin, all.subspan(begin, end - begin));
  write_now(descriptor_, piece.offset + end, all.subspan(end));
}

void OutputFile::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_there_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void OutputFile::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_there_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Piece piece = std::move(jobs_.front());
    jobs_.pop_front();
    if (error_) continue;  // its buffer goes back
    lock.unlock();
    std::exception_ptr error;
    try {
      write_piece(piece);
    } catch (...) {
      error = std::current_exception();
    }
    piece.buffer = {};
    lock.lock();
    error_ = error;
  }
}

void OutputFile::check_error() {
  const std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void OutputFile::finish() {
  submit(piece_.end);
  stop_thread();
  check_error();
  for (const Replacement& part : replacements_) write_now(descriptor_, part.offset, part.bytes);
  // Something may have been there before the output was taken back.
  if (ftruncate(descriptor_, static_cast<off_t>(end_)) != 0) {
    fail(fmt::format("cannot write {}: {}", path_, reason()));
  }
  if (fsync(descriptor_) != 0) fail(fmt::format("cannot write {}: {}", path_, reason()));
  if (direct_ >= 0) close(std::exchange(direct_, -1));
  if (close(std::exchange(descriptor_, -1)) != 0) {
    const std::string why = reason();
    unlink(path_.c_str());
    fail(fmt::format("cannot write {}: {}", path_, why));
  }
}

}  // namespace slimgemm::checkpoint
