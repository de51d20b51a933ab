// SPDX-License-Identifier: Apache-2.0
// Host side of the stream kernels.
#pragma once

#include "plan/kernel_table.hpp"

#include <cstddef>

namespace slimgemm::cuda {

// One for each file in instances/: the kernel of an entry of plan::stream_table, or null.
const void* stream_kernel_t1(std::size_t index);
const void* stream_kernel_t2(std::size_t index);
const void* stream_kernel_t4(std::size_t index);
const void* stream_kernel_t8(std::size_t index);

/// The kernel of an entry of plan::stream_table.
inline const void* stream_kernel_for(std::size_t index) {
  switch (plan::stream_table[index].token_tiles) {
    case 1: return stream_kernel_t1(index);
    case 2: return stream_kernel_t2(index);
    case 4: return stream_kernel_t4(index);
    case 8: return stream_kernel_t8(index);
    default: return nullptr;
  }
}

}  // namespace slimgemm::cuda
