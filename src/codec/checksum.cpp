// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum.hpp"

#if SLIMGEMM_HAVE_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace slimgemm {

#if SLIMGEMM_HAVE_XXHASH
bool checksums_available() noexcept { return true; }

std::uint64_t checksum(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}
#else
bool checksums_available() noexcept { return false; }

std::uint64_t checksum(std::span<const std::byte>) noexcept { return 0; }
#endif

}  // namespace slimgemm
