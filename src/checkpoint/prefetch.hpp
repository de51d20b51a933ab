// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace slimgemm::checkpoint {

/// Items that a thread of its own makes ahead of the one that needs them.
template <class Item>
class Prefetch {
 public:
  /// Hands over an item; false: no more are wanted. Waits while enough are ready.
  using Push = std::function<bool(Item)>;

  /// `produce` runs in the thread and pushes the items in order. What it uses outlives this.
  explicit Prefetch(std::function<void(const Push&)> produce)
      : produce_(std::move(produce)), thread_([this] { work(); }) {}
  ~Prefetch() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      ready_.clear();  // what they hold may be what the thread waits for
    }
    changed_.notify_all();
    thread_.join();
  }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// The next item, or nothing after the last. Throws what `produce` threw, after all items before.
  std::optional<Item> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || done_; });
    if (ready_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<Item> item(std::move(ready_.front()));
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return item;
  }

 private:
  static constexpr std::size_t ready_max = 64;  // large ones wait for their memory before

  bool push(Item item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || ready_.size() < ready_max; });
    if (stop_) return false;
    ready_.push_back(std::move(item));
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  void work() noexcept {
    std::exception_ptr error;
    try {
      produce_([this](Item item) { return push(std::move(item)); });
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    done_ = true;
    error_ = error;
    changed_.notify_all();
  }

  std::function<void(const Push&)> produce_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> ready_;
  bool stop_ = false;
  bool done_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace slimgemm::checkpoint
