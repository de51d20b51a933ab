// SPDX-License-Identifier: Apache-2.0
// The reader's checks of docs/format.md on bytes from outside. All throw Error(corrupt_data) that
// names the field, its value and its limit.
#pragma once

#include "format/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm {

/// Section 1: every header field. Reads only the header and the size of `packed`.
format::Header check_header(std::span<const std::byte> packed);

/// The rest: checksum, padding, tiles and exceptions. `header` is that of `packed`, checked; packed
/// starts at a multiple of 8 bytes. `xxh3` is what the payload's checksum is found to be.
void check_payload(std::span<const std::byte> packed, const format::Header& header,
                   std::uint64_t xxh3);

}  // namespace slimgemm
