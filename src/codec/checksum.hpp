// SPDX-License-Identifier: Apache-2.0
// The checksums of docs/format.md, section 1. A build without xxhash.h writes none and checks none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm {

bool checksums_available() noexcept;

/// XXH3-64 of the bytes; 0 in a build without xxhash.h.
std::uint64_t checksum(std::span<const std::byte> bytes) noexcept;

}  // namespace slimgemm
