// SPDX-License-Identifier: Apache-2.0
// Compiles the tile kernels of one token count; included by the small files in instances/.
#pragma once

#include "cuda/kernel_entry.hpp"
#include "cuda/tile_kernel.cuh"

#include <cstddef>
#include <utility>

namespace slimgemm::cuda {

template <int Tokens, std::size_t Index>
const void* tile_instance() {
  if constexpr (plan::tile_table[Index].tokens == Tokens) {
    return reinterpret_cast<const void*>(&tile_kernel<Index>);
  } else {
    return nullptr;
  }
}

/// The kernel of table entry `index` if it takes Tokens tokens, else null.
template <int Tokens>
const void* find_tile_instance(std::size_t index) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    const void* const kernels[] = {tile_instance<Tokens, I>()...};
    return kernels[index];
  }
  (std::make_index_sequence<plan::tile_count>{});
}

}  // namespace slimgemm::cuda
