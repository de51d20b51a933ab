// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cpu/kernels.hpp"

#include <cstdint>
#include <limits>

namespace slimgemm::cpu {

/// Walks the exceptions of one row tile in order of their column.
class ExceptionCursor {
 public:
  static constexpr std::int64_t end_k = std::numeric_limits<std::int64_t>::max();

  ExceptionCursor() = default;
  ExceptionCursor(const Weights& weights, std::int64_t row_tile) {
    if (weights.groups.empty()) return;
    const auto tile = static_cast<std::size_t>(row_tile);
    group_ = &weights.groups[tile];
    extra_ = weights.groups.data() + weights.row_tiles + weights.extra_begin[tile];
    extra_left_ = weights.extra_begin[tile + 1] - weights.extra_begin[tile];
    settle();
  }

  /// Column of the current exception; end_k behind the last.
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] const format::ExceptionEntry& entry() const { return group_->entries[index_]; }

  void next() {
    ++index_;
    settle();
  }

 private:
  void settle() {
    if (index_ == format::group_entries) {
      if (extra_left_ == 0) {
        k_ = end_k;
        return;
      }
      --extra_left_;
      group_ = extra_++;
      index_ = 0;
    }
    k_ = entry().row == format::unused_row ? end_k : static_cast<std::int64_t>(entry().k);
  }

  const format::ExceptionGroup* group_ = nullptr;
  const format::ExceptionGroup* extra_ = nullptr;
  std::uint32_t extra_left_ = 0;
  int index_ = 0;
  std::int64_t k_ = end_k;
};

}  // namespace slimgemm::cpu
