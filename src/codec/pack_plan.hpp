// SPDX-License-Identifier: Apache-2.0
// How a matrix is packed: decided once, then written a few row tiles at a time, wherever the caller
// wants them. pack() writes them all into one buffer.
#pragma once

#include <slimgemm/packed.hpp>

#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm::codec {

class PackPlan {
 public:
  /// Reads the matrix, which must stay where it is and as it is. Errors: as pack().
  PackPlan(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
           const PackOptions& options);
  PackPlan(std::span<const float> w, std::int64_t n, std::int64_t k, const PackOptions& options);

  /// All of it but flags and checksums.
  [[nodiscard]] const format::Header& header() const { return header_; }
  [[nodiscard]] Encoding encoding() const { return static_cast<Encoding>(header_.encoding); }
  [[nodiscard]] std::uint64_t row_tiles() const;
  /// Bytes of the tiles of one row tile.
  [[nodiscard]] std::uint64_t row_tile_bytes() const;

  /// Writes the tiles of the row tiles [begin, end), one behind the other.
  void encode(std::uint64_t begin, std::uint64_t end, std::byte* tiles);

  /// What follows the tiles: exception groups, extra_begin and the padding before both. Complete
  /// when every row tile is encoded.
  [[nodiscard]] std::span<const std::byte> tail() const { return {tail_.data(), tail_.size()}; }
  /// The whole header, when every row tile is encoded; the payload is all that follows it.
  [[nodiscard]] format::Header sealed_header(std::uint64_t payload_xxh3) const;

 private:
  /// The byte of the tail at `offset` of the packed matrix.
  std::byte* tail_at(std::uint64_t offset);
  void encode_split12(std::uint64_t row_tile, std::byte* tiles);
  void encode_raw16(std::uint64_t row_tile, std::byte* tiles);
  void encode_raw32(std::uint64_t row_tile, std::byte* tiles);

  std::span<const std::uint16_t> bf16_;
  std::span<const float> f32_;
  int threads_;
  format::Header header_{};
  AlignedBuffer tail_{0};
  std::atomic<bool> has_nonfinite_{false};
};

}  // namespace slimgemm::codec
