// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace slimgemm::checkpoint {

/// Takes bytes in order, made where it wants them.
class PieceSink {
 public:
  virtual ~PieceSink() = default;

  /// Room for the next bytes: at least `least`, which is at most piece_max(), and at most `most`.
  virtual std::span<std::byte> reserve(std::uint64_t least, std::uint64_t most) = 0;
  /// The first `size` bytes of that room are there.
  virtual void commit(std::uint64_t size) = 0;
  [[nodiscard]] virtual std::uint64_t piece_max() const = 0;

  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const std::span<std::byte> room = reserve(1, bytes.size());
      std::memcpy(room.data(), bytes.data(), room.size());
      commit(room.size());
      bytes = bytes.subspan(room.size());
    }
  }
};

}  // namespace slimgemm::checkpoint
