// SPDX-License-Identifier: Apache-2.0
// A second decoder, for tests: scalar, slow, and written from docs/format.md alone, so that it
// shares no code and no constant with the packer, with unpack() or with layout.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slimgemm::reference {

struct Decoded {
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  std::vector<std::uint16_t> bf16;  // row-major n x k; empty for raw32
  std::vector<std::uint32_t> f32;   // row-major n x k, raw bits; empty for BF16
};

/// Decodes a packed matrix that follows docs/format.md. Throws std::runtime_error where a read
/// would leave `bytes` or the header is not one of version 1; it does not check anything else.
Decoded decode(std::span<const std::byte> bytes);

}  // namespace slimgemm::reference
