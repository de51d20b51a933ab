// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <new>
#include <utility>

namespace slimgemm {

/// While one lives, the memory of one large AlignedBuffer that its thread frees stays for the next
/// one that fits: fresh pages are a third of the system time of packing. It is freed
/// before a larger one is made, so that no more memory is in use than without.
class MemoryKeeper {
 public:
  /// Memory, and how much of it there is; null where there is none.
  struct Memory {
    std::byte* data = nullptr;
    std::size_t size = 0;
    std::align_val_t alignment{};
  };

  MemoryKeeper() : outer_(std::exchange(current_, this)) {}
  ~MemoryKeeper() {
    current_ = outer_;
    drop();
  }
  MemoryKeeper(const MemoryKeeper&) = delete;
  MemoryKeeper& operator=(const MemoryKeeper&) = delete;

  /// What this thread's keeper has of at least `size` bytes.
  static Memory take(std::size_t size) noexcept {
    if (current_ == nullptr) return {};
    if (current_->kept_.size < size) current_->drop();
    return std::exchange(current_->kept_, {});
  }
  /// False where nothing keeps it: the caller frees it.
  static bool give(const Memory& memory) noexcept {
    if (current_ == nullptr || current_->kept_.size >= memory.size) return false;
    current_->drop();
    current_->kept_ = memory;
    return true;
  }

 private:
  void drop() noexcept {
    if (kept_.data != nullptr) ::operator delete(kept_.data, kept_.alignment);
    kept_ = {};
  }

  inline static thread_local MemoryKeeper* current_ = nullptr;
  MemoryKeeper* outer_;
  Memory kept_;
};

}  // namespace slimgemm
