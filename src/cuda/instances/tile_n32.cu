// SPDX-License-Identifier: Apache-2.0
#include "cuda/tile_instances.cuh"

namespace slimgemm::cuda {
const void* tile_kernel_n32(std::size_t index) { return find_tile_instance<32>(index); }
}  // namespace slimgemm::cuda
