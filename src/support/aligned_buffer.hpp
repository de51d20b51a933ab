// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/error.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>

namespace slimgemm {

/// Host memory of a fixed size, its start at a multiple of 256 bytes. The contents are undefined.
class AlignedBuffer {
 public:
  static constexpr std::size_t alignment = 256;

  /// Errors: out_of_memory naming the size.
  explicit AlignedBuffer(std::uint64_t size_bytes) : size_(check(size_bytes)), data_(get(size_)) {}

  [[nodiscard]] std::byte* data() noexcept { return data_.get(); }
  [[nodiscard]] const std::byte* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept {
      ::operator delete (p, std::align_val_t{alignment});
    }
  };

  [[noreturn]] static void fail(std::uint64_t size_bytes) {
    throw Error(ErrorCode::out_of_memory,
                "cannot allocate " + std::to_string(size_bytes) + " bytes of host memory");
  }
  static std::size_t check(std::uint64_t size_bytes) {
    if (size_bytes > std::numeric_limits<std::size_t>::max() / 2) fail(size_bytes);
    return static_cast<std::size_t>(size_bytes);
  }
  static std::byte* get(std::size_t size) {
    void* p = ::operator new (size, std::align_val_t{alignment}, std::nothrow);
    if (p == nullptr) fail(size);
    return static_cast<std::byte*>(p);
  }

  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace slimgemm
