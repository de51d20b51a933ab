// SPDX-License-Identifier: Apache-2.0
#include "cpu/kernels.hpp"
#include "support/aligned_buffer.hpp"

#include <optional>

namespace slimgemm::cpu {

std::uint8_t* thread_scratch(ScratchUse use, std::size_t bytes) {
  // Two uses at a time: the thread that arranged x also computes row tiles.
  thread_local std::optional<AlignedBuffer> buffers[2];
  std::optional<AlignedBuffer>& buffer = buffers[static_cast<int>(use)];
  if (!buffer || buffer->size() < bytes) {
    buffer.reset();
    buffer.emplace(bytes);
  }
  return reinterpret_cast<std::uint8_t*>(buffer->data());
}

}  // namespace slimgemm::cpu
