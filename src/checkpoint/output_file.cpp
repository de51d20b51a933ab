// SPDX-License-Identifier: Apache-2.0
// Whole pages of a large write are copied into chunks that threads write with O_DIRECT: fresh pages
// of the system's cache would cost more time than packing does. The odd bytes at both ends take the
// usual way.
#include "checkpoint/output_file.hpp"

#include "checkpoint/errors.hpp"
#include "support/parallel.hpp"

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

constexpr std::uint64_t page_bytes = 4096;
// Below this the usual way is as good.
constexpr std::uint64_t direct_bytes_min = std::uint64_t{1} << 20;
constexpr int writers = 2;

/// Why a file that is to be new is there already.
std::string why_it_exists(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  const bool locked = descriptor >= 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0;
  if (descriptor >= 0) close(descriptor);
  return locked ? "another process is writing it"
                : "it exists; an interrupted run left it, or it is yours: move it away";
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path) {
  // Never a file that is there, nor one behind a link: it may be the input, or somebody else's.
  descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0) {
    fail(
        fmt::format("cannot write {}: {}", path, errno == EEXIST ? why_it_exists(path) : reason()));
  }
  std::string problem;
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    problem = "another process is writing it";
  } else if (ftruncate(descriptor_, 0) != 0) {
    problem = reason();
  }
  if (!problem.empty()) {
    close(descriptor_);
    fail(fmt::format("cannot write {}: {}", path, problem));
  }
#if defined(O_DIRECT)
  direct_ = open(path.c_str(), O_WRONLY | O_DIRECT | O_CLOEXEC);
#endif
}

OutputFile::~OutputFile() {
  stop_threads();
  if (direct_ >= 0) close(direct_);
  if (descriptor_ < 0) return;
  unlink(path_.c_str());  // not finished
  close(descriptor_);
}

void OutputFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  check_error();
  const std::uint64_t begin = (offset + page_bytes - 1) / page_bytes * page_bytes;
  const std::uint64_t end = (offset + bytes.size()) / page_bytes * page_bytes;
  if (direct_ < 0 || begin >= end || end - begin < direct_bytes_min) {
    write_now(descriptor_, offset, bytes);
    return;
  }
  write_now(descriptor_, offset, bytes.first(begin - offset));
  write_later(begin, bytes.subspan(begin - offset, end - begin));
  write_now(descriptor_, end, bytes.subspan(end - offset));
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

void OutputFile::write_later(std::uint64_t offset, std::span<const std::byte> bytes) {
  start_threads();
  while (!bytes.empty()) {
    AlignedBuffer* const buffer = take_buffer();
    if (buffer == nullptr) break;
    const std::uint64_t size = std::min<std::uint64_t>(buffer->size(), bytes.size());
    std::memcpy(buffer->data(), bytes.data(), size);
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({buffer, offset, size});
    }
    work_there_.notify_one();
    bytes = bytes.subspan(size);
    offset += size;
  }
  check_error();
}

// A buffer that is free, or null after an error.
AlignedBuffer* OutputFile::take_buffer() {
  std::unique_lock lock(mutex_);
  if (free_.empty() && buffers_.size() < chunks_max) return &buffers_.emplace_back(chunk_bytes);
  buffer_free_.wait(lock, [&] { return !free_.empty() || !error_.empty(); });
  if (free_.empty()) return nullptr;
  AlignedBuffer* const buffer = free_.back();
  free_.pop_back();
  return buffer;
}

void OutputFile::start_threads() {
  if (!threads_.empty()) return;
  for (int i = 0; i < writers; ++i) threads_.emplace_back([this] { work(); });
}

void OutputFile::stop_threads() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_there_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void OutputFile::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_there_.wait(lock, [&] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = jobs_.front();
    jobs_.pop_front();
    const bool failed = !error_.empty();
    lock.unlock();
    std::string problem;
    try {
      if (!failed) write_now(direct_, job.offset, {job.buffer->data(), job.size});
    } catch (const Error& error) {
      problem = error.what();
    }
    lock.lock();
    if (error_.empty()) error_ = problem;
    free_.push_back(job.buffer);
    buffer_free_.notify_one();
  }
}

void OutputFile::check_error() {
  const std::lock_guard lock(mutex_);
  if (!error_.empty()) fail(error_);
}

void OutputFile::finish() {
  stop_threads();
  check_error();
  if (fsync(descriptor_) != 0) fail(fmt::format("cannot write {}: {}", path_, reason()));
  if (direct_ >= 0) close(std::exchange(direct_, -1));
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail(fmt::format("cannot write {}: {}", path_, reason()));
  }
}

}  // namespace slimgemm::checkpoint
