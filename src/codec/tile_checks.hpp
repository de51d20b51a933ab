// SPDX-License-Identifier: Apache-2.0
// The reader's checks of tiles and exception groups (docs/format.md, sections 2 to 4).
#pragma once

#include "format/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slimgemm::codec {

struct RowTileFacts {
  std::uint64_t exceptions = 0;
  bool has_nonfinite = false;
};

/// Checks packed bytes whose header and extra_begin are already known to be right. Safe to use from
/// several threads.
class TileChecker {
 public:
  TileChecker(std::span<const std::byte> packed, const format::Header& header);

  /// Errors: corrupt_data naming the place, the value and the rule.
  [[nodiscard]] RowTileFacts check_row_tile(std::uint64_t row_tile) const;

 private:
  // The bits of a tile that belong to no weight of the matrix, for the three kinds of edge tile.
  [[nodiscard]] std::vector<std::byte> padding_mask(int rows, int columns) const;
  [[nodiscard]] const std::vector<std::byte>& mask_of(std::uint64_t row_tile,
                                                      std::uint64_t k_tile) const;
  void check_padding(std::uint64_t row_tile) const;
  [[nodiscard]] bool any_nonfinite(std::uint64_t row_tile) const;
  [[nodiscard]] RowTileFacts check_groups(std::uint64_t row_tile) const;
  void check_entry(const format::ExceptionEntry& entry, std::uint64_t row_tile, std::uint64_t group,
                   int slot) const;
  void check_zero_exponents(std::uint64_t row_tile, std::uint64_t exceptions) const;

  [[nodiscard]] const std::byte* tile(std::uint64_t row_tile, std::uint64_t k_tile) const {
    return tiles_ + (row_tile * k_tiles_ + k_tile) * tile_bytes_;
  }
  [[nodiscard]] int rows_of(std::uint64_t row_tile) const;
  [[nodiscard]] int columns_of(std::uint64_t k_tile) const;

  format::Header header_;
  std::uint64_t row_tiles_;
  std::uint64_t k_tiles_;
  std::uint64_t tile_bytes_;
  const std::byte* tiles_;
  const format::ExceptionGroup* groups_;
  const std::uint32_t* extra_begin_;
  std::vector<std::byte> no_mask_;
  std::vector<std::byte> right_mask_;
  std::vector<std::byte> bottom_mask_;
  std::vector<std::byte> corner_mask_;
};

}  // namespace slimgemm::codec
