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
#include <set>
#include <utility>
#include <vector>

namespace slimgemm::checkpoint {

/// Buffers that threads take and give back.
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

  /// `least_bytes` may be taken at a time, and twice the largest that is.
  explicit BufferPool(std::uint64_t least_bytes) : least_bytes_(least_bytes) {}

  /// A buffer of at least so many bytes, beginning with a page. Waits until the limit allows it, or
  /// no other is taken. Small ones do not count. Errors: out_of_memory.
  Lease take(std::uint64_t size_bytes) {
    Lease lease;
    if (size_bytes <= small_bytes) {
      lease.buffer_ = std::make_unique<AlignedBuffer>(size_bytes);
      return lease;
    }
    size_bytes = std::max<std::uint64_t>(size_bytes, 2 * AlignedBuffer::huge_page_bytes);
    std::unique_lock lock(mutex_);
    given_.wait(lock,
                [&] { return taken_.empty() || taken_bytes_ + size_bytes <= limit(size_bytes); });
    kept_max_ = std::max(kept_max_, limit(size_bytes));
    if (const auto found = find(size_bytes); found != free_.end()) {
      lease.buffer_ = std::move(*found);
      free_bytes_ -= lease.buffer_->size();
      free_.erase(found);
    } else {
      while (!free_.empty() && taken_bytes_ + free_bytes_ + size_bytes > kept_max_) {
        free_bytes_ -= free_.back()->size();
        free_.pop_back();
      }
      lease.buffer_ = std::make_unique<AlignedBuffer>(size_bytes);
    }
    taken_bytes_ += lease.buffer_->size();
    taken_.insert(lease.buffer_->size());
    lease.pool_ = this;
    return lease;
  }

 private:
  static constexpr std::uint64_t small_bytes = std::uint64_t{1} << 16;
  using Buffers = std::vector<std::unique_ptr<AlignedBuffer>>;

  [[nodiscard]] std::uint64_t limit(std::uint64_t size_bytes) const {
    const std::uint64_t largest = taken_.empty() ? 0 : *taken_.rbegin();
    return std::max(least_bytes_, 2 * std::max(size_bytes, largest));
  }

  // The smallest that is large enough, unless most of it would lie idle.
  Buffers::iterator find(std::uint64_t size_bytes) {
    auto best = free_.end();
    for (auto i = free_.begin(); i != free_.end(); ++i) {
      const std::uint64_t size = (*i)->size();
      if (size < size_bytes || size / 2 > size_bytes) continue;
      if (!taken_.empty() && taken_bytes_ + size > kept_max_) continue;
      if (best == free_.end() || size < (*best)->size()) best = i;
    }
    return best;
  }

  void give(std::unique_ptr<AlignedBuffer> buffer) {
    {
      const std::lock_guard lock(mutex_);
      taken_bytes_ -= buffer->size();
      taken_.erase(taken_.find(buffer->size()));
      free_bytes_ += buffer->size();
      free_.push_back(std::move(buffer));
    }
    given_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable given_;
  Buffers free_;
  std::multiset<std::uint64_t> taken_;  // sizes
  const std::uint64_t least_bytes_;
  std::uint64_t kept_max_ = 0;  // the highest limit so far: what is free may fill it up
  std::uint64_t taken_bytes_ = 0;
  std::uint64_t free_bytes_ = 0;
};

/// What one run takes.
struct Workspace {
  static constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 23;
  /// What is worked on and what is read meanwhile.
  BufferPool inputs{8 * piece_bytes};
  /// Output: a piece that is filled, the others on their way to the disk.
  BufferPool pieces{6 * piece_bytes};
};

}  // namespace slimgemm::checkpoint
