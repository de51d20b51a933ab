// SPDX-License-Identifier: Apache-2.0
// What gemm-inl.hpp uses, outside any target attribute.
#pragma once

#include "cpu/exception_cursor.hpp"
#include "cpu/kernels.hpp"
#include "support/bf16.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace slimgemm::cpu {

inline constexpr int line_bytes = 64;

// Asks for the cache line at an address, which may lie behind the weights: into all caches, or into
// all but the nearest one.
inline void prefetch_near(const std::uint8_t* address) { __builtin_prefetch(address, 0, 3); }
inline void prefetch_far(const std::uint8_t* address) { __builtin_prefetch(address, 0, 2); }

}  // namespace slimgemm::cpu
