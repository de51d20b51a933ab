// SPDX-License-Identifier: Apache-2.0
// Memory that a run works in, from matrix to matrix and file to file: the system zeroes fresh pages
// first, which costs more time than packing does.
#pragma once

#include "support/aligned_buffer.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace slimgemm::checkpoint {

/// A number of buffers that threads take and give back.
class BufferPool {
 public:
  /// A buffer that is taken; it goes back when this ends. The pool must live longer.
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept
        : pool_(std::exchange(other.pool_, nullptr)), buffer_(std::move(other.buffer_)) {}
    Lease& operator=(Lease&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(buffer_, other.buffer_);
      return *this;
    }
    ~Lease() {
      if (pool_ != nullptr) pool_->give(std::move(buffer_));
    }
    [[nodiscard]] AlignedBuffer& operator*() const { return *buffer_; }
    [[nodiscard]] AlignedBuffer* operator->() const { return buffer_.get(); }
    explicit operator bool() const { return buffer_ != nullptr; }

   private:
    friend class BufferPool;
    BufferPool* pool_ = nullptr;
    std::unique_ptr<AlignedBuffer> buffer_;
  };

  static constexpr std::uint64_t small_bytes = std::uint64_t{1} << 16;

  explicit BufferPool(std::size_t buffers) { free_.resize(buffers); }

  /// Small ones are made as they are wanted. Else waits for one: the smallest that has so many
  /// bytes, or the smallest made larger. It begins with a page. Errors: out_of_memory.
  Lease take(std::uint64_t size_bytes) {
    Lease lease;
    if (size_bytes <= small_bytes) {
      lease.buffer_ = std::make_unique<AlignedBuffer>(size_bytes);
      return lease;
    }
    size_bytes = std::max<std::uint64_t>(size_bytes, 2 * AlignedBuffer::huge_page_bytes);
    {
      std::unique_lock lock(mutex_);
      given_.wait(lock, [&] { return !free_.empty(); });
      const auto chosen =
          std::min_element(free_.begin(), free_.end(), [&](const auto& a, const auto& b) {
            return std::pair(size(a) < size_bytes, size(a)) <
                   std::pair(size(b) < size_bytes, size(b));
          });
      lease.pool_ = this;
      lease.buffer_ = std::move(*chosen);
      free_.erase(chosen);
    }
    if (!lease.buffer_ || lease.buffer_->size() < size_bytes) {
      lease.buffer_ = nullptr;  // before the next one is made
      lease.buffer_ = std::make_unique<AlignedBuffer>(size_bytes);
    }
    return lease;
  }

 private:
  static std::uint64_t size(const std::unique_ptr<AlignedBuffer>& buffer) {
    return buffer ? buffer->size() : 0;
  }

  void give(std::unique_ptr<AlignedBuffer> buffer) {
    {
      const std::lock_guard lock(mutex_);
      free_.push_back(std::move(buffer));
    }
    given_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable given_;
  std::vector<std::unique_ptr<AlignedBuffer>> free_;  // null: none was needed yet
};

/// What one run takes: twice the largest matrix, and the pieces of output.
struct Workspace {
  static constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 23;
  BufferPool inputs{2};  ///< one that is worked on, one that is read meanwhile
  BufferPool pieces{6};  ///< of output: one that is filled, the others on their way to the disk
};

}  // namespace slimgemm::checkpoint
