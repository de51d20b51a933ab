// SPDX-License-Identifier: Apache-2.0
// Where the sections of a packed matrix lie: one place for the packers, which build a header, and
// the reader, which compares with what it was given.
#pragma once

#include <slimgemm/types.hpp>

#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"

#include <cstdint>
#include <optional>

namespace slimgemm {

/// What the header says beside the section bounds.
struct Contents {
  Encoding encoding = Encoding::raw16;
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  int window_base = 0;
  std::uint64_t exception_count = 0;
  std::uint64_t group_count = 0;
};

/// A header with all section bounds, without flags and checksums; nothing if the packed matrix
/// would take more than 2^64 - 1 bytes.
std::optional<format::Header> lay_out(const Contents& contents);

/// The same for packers. Errors: out_of_memory naming n and k.
format::Header make_header(const Contents& contents);

/// `header` with its flags and, where the build has checksums, with them.
format::Header seal(format::Header header, bool has_nonfinite, std::uint64_t payload_xxh3);

/// Zeroes the bytes of `buffer` between header, tiles, groups and extra, sets the flags and the
/// checksums of `header` and writes it. The sections must be complete.
void finish(AlignedBuffer& buffer, format::Header header, bool has_nonfinite);

}  // namespace slimgemm
