// SPDX-License-Identifier: Apache-2.0
// How the backends see a packed matrix: its header and its sections in place.
#pragma once

#include <slimgemm/packed.hpp>

#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm {

struct PackedAccess {
  static const format::Header& header(const PackedMatrix& packed) noexcept;

  static std::uint64_t row_tiles(const PackedMatrix& packed) noexcept;  // ceil(n / 16)
  static std::uint64_t k_tiles(const PackedMatrix& packed) noexcept;    // ceil(k / 64)

  /// [row_tile][k_tile] tiles, aligned to 256 bytes.
  static std::span<const std::byte> tiles(const PackedMatrix& packed) noexcept;
  /// Exception groups, aligned to 256 bytes; empty for the raw encodings.
  static std::span<const format::ExceptionGroup> groups(const PackedMatrix& packed) noexcept;
  /// row_tiles + 1 values, aligned to 256 bytes; empty for the raw encodings.
  static std::span<const std::uint32_t> extra_begin(const PackedMatrix& packed) noexcept;

  /// Makes a matrix of a buffer that is known to follow docs/format.md.
  static PackedMatrix adopt(AlignedBuffer&& buffer);
  /// The same for bytes from outside: PackedMatrix::from_bytes() without the copy.
  static PackedMatrix check_and_adopt(AlignedBuffer&& buffer);
  /// The same for bytes that stay where they are, at a multiple of 256, while the matrix and its
  /// copies live. `payload_xxh3` is the checksum of what follows the header.
  static PackedMatrix check_and_view(std::span<const std::byte> bytes, std::uint64_t payload_xxh3);

 private:
  static PackedMatrix hold(AlignedBuffer&& buffer, std::span<const std::byte> bytes);
};

}  // namespace slimgemm
