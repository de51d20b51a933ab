// SPDX-License-Identifier: Apache-2.0
// What gemm-inl.hpp uses, outside any target attribute.
#pragma once

#include "cpu/bf16.hpp"
#include "cpu/exception_cursor.hpp"
#include "cpu/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace slimgemm::cpu {

constexpr int packed_tile_bytes(Encoding encoding) {
  switch (encoding) {
    case Encoding::split12:
      return format::split12_tile_bytes;
    case Encoding::raw16:
      return format::raw16_tile_bytes;
    case Encoding::raw32:
      return format::raw32_tile_bytes;
  }
  return 0;
}

inline constexpr int line_bytes = 64;

// Asks for the cache line at an address, which may lie behind the weights: into all caches, or into
// all but the nearest one.
inline void prefetch_near(const std::uint8_t* address) { __builtin_prefetch(address, 0, 3); }
inline void prefetch_far(const std::uint8_t* address) { __builtin_prefetch(address, 0, 2); }

}  // namespace slimgemm::cpu
