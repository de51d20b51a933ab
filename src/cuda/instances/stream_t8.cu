// SPDX-License-Identifier: Apache-2.0
#include "cuda/stream_instances.cuh"

namespace slimgemm::cuda {
const void* stream_kernel_t8(std::size_t index) { return find_stream_instance<8>(index); }
}  // namespace slimgemm::cuda
