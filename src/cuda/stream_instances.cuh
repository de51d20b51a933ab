// SPDX-License-Identifier: Apache-2.0
// Compiles the stream kernels of one token tile count; included by the small files in instances/,
// which exist so that the instances compile side by side.
#pragma once

#include "cuda/kernel_entry.hpp"
#include "cuda/rows_kernel.cuh"

#include <cstddef>
#include <utility>

namespace slimgemm::cuda {

template <int TokenTiles, std::size_t Index>
const void* stream_instance() {
  if constexpr (plan::stream_table[Index].token_tiles == TokenTiles) {
    if constexpr (plan::stream_table[Index].by_rows) {
      return reinterpret_cast<const void*>(&rows_kernel<Index>);
    } else {
      return reinterpret_cast<const void*>(&stream_kernel<Index>);
    }
  } else {
    return nullptr;
  }
}

/// The kernel of table entry `index` if it has TokenTiles token tiles, else null.
template <int TokenTiles>
const void* find_stream_instance(std::size_t index) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const void* const kernels[] = {stream_instance<TokenTiles, I>()...};
    return kernels[index];
  }
  (std::make_index_sequence<plan::stream_count>{});
}

}  // namespace slimgemm::cuda
