// SPDX-License-Identifier: Apache-2.0
// From an entry of the kernel table to its compiled kernel.
#pragma once

#include "plan/kernel_plan.hpp"
#include "plan/kernel_table.hpp"

#include <cstddef>

namespace slimgemm::cuda {

// One for each file in instances/: the kernel of an entry of plan::stream_table, or null.
const void* stream_kernel_t1(std::size_t index);
const void* stream_kernel_t2(std::size_t index);
const void* stream_kernel_t4(std::size_t index);

/// The kernel of an entry of plan::stream_table.
inline const void* stream_kernel_for(std::size_t index) {
  switch (plan::stream_table[index].token_tiles) {
    case 1:
      return stream_kernel_t1(index);
    case 2:
      return stream_kernel_t2(index);
    case 4:
      return stream_kernel_t4(index);
    default:
      return nullptr;
  }
}

const void* tile_kernel_n32(std::size_t index);
const void* tile_kernel_n64(std::size_t index);
const void* tile_kernel_n96(std::size_t index);
const void* tile_kernel_n128(std::size_t index);
const void* tile_kernel_n256(std::size_t index);

/// The kernel of an entry of plan::tile_table.
inline const void* tile_kernel_for(std::size_t index) {
  switch (plan::tile_table[index].tokens) {
    case 32:
      return tile_kernel_n32(index);
    case 64:
      return tile_kernel_n64(index);
    case 96:
      return tile_kernel_n96(index);
    case 128:
      return tile_kernel_n128(index);
    case 256:
      return tile_kernel_n256(index);
    default:
      return nullptr;
  }
}

inline const void* kernel_for(const plan::Instance& instance) {
  return instance.family == plan::Family::stream ? stream_kernel_for(instance.index)
                                                 : tile_kernel_for(instance.index);
}

}  // namespace slimgemm::cuda
