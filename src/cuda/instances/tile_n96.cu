// SPDX-License-Identifier: Apache-2.0
#include "cuda/tile_instances.cuh"

namespace slimgemm::cuda {
const void* tile_kernel_n96(std::size_t index) { return find_tile_instance<96>(index); }
}  // namespace slimgemm::cuda
