// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace slimgemm {

/// Host memory of a fixed size, its start at a multiple of 256 bytes. The contents are undefined.
/// Large buffers ask for huge pages: weights are read as fast as memory gives them, and with pages
/// of 4 KB address translation is a part of that time.
class AlignedBuffer {
 public:
  static constexpr std::size_t alignment = 256;
  static constexpr std::size_t huge_page_bytes = std::size_t{1} << 21;

  /// Errors: out_of_memory naming the size.
  explicit AlignedBuffer(std::uint64_t size_bytes)
      : size_(check(size_bytes)), data_(get(size_), Free{alignment_of(size_)}) {}

  [[nodiscard]] std::byte* data() noexcept { return data_.get(); }
  [[nodiscard]] const std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Free {
    std::align_val_t alignment;
    void operator()(std::byte* p) const noexcept { ::operator delete(p, alignment); }
  };

  [[noreturn]] static void fail(std::uint64_t size_bytes) {
    throw Error(ErrorCode::out_of_memory,
                "cannot allocate " + std::to_string(size_bytes) + " bytes of host memory");
  }
  static std::size_t check(std::uint64_t size_bytes) {
    if (size_bytes > std::numeric_limits<std::size_t>::max() / 2) fail(size_bytes);
    return static_cast<std::size_t>(size_bytes);
  }
  static bool is_large(std::size_t size) { return size >= 2 * huge_page_bytes; }
  static std::align_val_t alignment_of(std::size_t size) {
    return std::align_val_t{is_large(size) ? huge_page_bytes : alignment};
  }
  static std::byte* get(std::size_t size) {
    void* p = ::operator new(size, alignment_of(size), std::nothrow);
    if (p == nullptr) fail(size);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // A wish: a kernel without huge pages refuses it, and nothing but the speed changes.
    if (is_large(size)) madvise(p, size / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
#endif
    return static_cast<std::byte*>(p);
  }

  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace slimgemm
