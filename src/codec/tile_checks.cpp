// SPDX-License-Identifier: Apache-2.0
#include "codec/tile_checks.hpp"

#include <slimgemm/error.hpp>

#include "codec/sections.hpp"
#include "codec/window.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace slimgemm::codec {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::corrupt_data, message);
}

std::string place(std::uint64_t row, std::uint64_t k) {
  return "weight (" + std::to_string(row) + ", " + std::to_string(k) + ")";
}

std::uint32_t load_word(const std::byte* p) {
  std::uint32_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

void set_bits(std::byte* p, std::uint32_t bits) {
  const std::uint32_t word = load_word(p) | bits;
  std::memcpy(p, &word, sizeof(word));
}

bool any_common_bit(const std::byte* a, const std::byte* b, std::uint64_t size) {
  std::uint32_t common = 0;
  for (std::uint64_t i = 0; i < size; i += sizeof(common)) {
    common |= load_word(a + i) & load_word(b + i);
  }
  return common != 0;
}

// Whether some element has all exponent bits set; `exponents` masks them in a word.
bool any_full_exponent16(const std::byte* p, std::uint64_t size) {
  std::uint32_t found = 0;
  for (std::uint64_t i = 0; i < size; i += sizeof(found)) {
    // In each half: exponent + 1 carries into the sign bit's place.
    found |= ((load_word(p + i) & 0x7F807F80) + 0x00800080) & 0x80008000;
  }
  return found != 0;
}

bool any_full_exponent32(const std::byte* p, std::uint64_t size) {
  std::uint32_t found = 0;
  for (std::uint64_t i = 0; i < size; i += sizeof(found)) {
    found |= ((load_word(p + i) & 0x7F800000) + 0x00800000) & 0x80000000;
  }
  return found != 0;
}

}  // namespace

TileChecker::TileChecker(std::span<const std::byte> packed, const format::Header& header)
    : header_(header),
      row_tiles_(format::tiles_along(header.n, format::tile_rows)),
      k_tiles_(format::tiles_along(header.k, format::tile_k)),
      tile_bytes_(
          static_cast<std::size_t>(format::tile_bytes(static_cast<Encoding>(header.encoding)))),
      tiles_(packed.data() + header.tiles_offset),
      groups_(
          reinterpret_cast<const format::ExceptionGroup*>(packed.data() + header.groups_offset)),
      extra_begin_(reinterpret_cast<const std::uint32_t*>(packed.data() + header.extra_offset)) {
  const int rows = rows_of(row_tiles_ - 1);
  const int columns = columns_of(k_tiles_ - 1);
  if (columns < format::tile_k) right_mask_ = padding_mask(format::tile_rows, columns);
  if (rows < format::tile_rows) bottom_mask_ = padding_mask(rows, format::tile_k);
  corner_mask_ = padding_mask(rows, columns);
}

int TileChecker::rows_of(std::uint64_t row_tile) const {
  return static_cast<int>(
      std::min<std::uint64_t>(format::tile_rows, header_.n - row_tile * format::tile_rows));
}

int TileChecker::columns_of(std::uint64_t k_tile) const {
  return static_cast<int>(
      std::min<std::uint64_t>(format::tile_k, header_.k - k_tile * format::tile_k));
}

std::vector<std::byte> TileChecker::padding_mask(int rows, int columns) const {
  std::vector<std::byte> mask(tile_bytes_);
  for (int row = 0; row < format::tile_rows; ++row) {
    for (int k = 0; k < format::tile_k; ++k) {
      if (row < rows && k < columns) continue;
      const format::FragmentSlot slot = format::fragment_slot(row, k);
      switch (static_cast<Encoding>(header_.encoding)) {
        case Encoding::split12:
          mask[static_cast<std::size_t>(format::low_byte_offset(slot))] = std::byte{0xFF};
          set_bits(mask.data() + format::nibble_word_offset(slot),
                   format::nibble_bits(slot.index, 1, 7));
          break;
        case Encoding::raw16:
          std::memset(mask.data() + format::raw16_offset(slot), 0xFF, 2);
          break;
        case Encoding::raw32:
          std::memset(mask.data() + format::raw32_offset(slot), 0xFF, 4);
          break;
      }
    }
  }
  return mask;
}

const std::vector<std::byte>& TileChecker::mask_of(std::uint64_t row_tile,
                                                   std::uint64_t k_tile) const {
  const bool last_row = row_tile == row_tiles_ - 1;
  const bool last_column = k_tile == k_tiles_ - 1;
  if (last_row && last_column) return corner_mask_;
  if (last_row) return bottom_mask_;
  if (last_column) return right_mask_;
  return no_mask_;
}

void TileChecker::check_padding(std::uint64_t row_tile) const {
  const bool last_row = row_tile == row_tiles_ - 1;
  for (std::uint64_t t = last_row ? 0 : k_tiles_ - 1; t < k_tiles_; ++t) {
    const std::vector<std::byte>& mask = mask_of(row_tile, t);
    if (mask.empty()) continue;
    if (any_common_bit(tile(row_tile, t), mask.data(), tile_bytes_)) {
      fail("tile (" + std::to_string(row_tile) + ", " + std::to_string(t) +
           "): padding beyond n or k must be 0");
    }
  }
}

bool TileChecker::any_nonfinite(std::uint64_t row_tile) const {
  const std::byte* first = tile(row_tile, 0);
  const std::uint64_t size = k_tiles_ * tile_bytes_;
  return static_cast<Encoding>(header_.encoding) == Encoding::raw16
             ? any_full_exponent16(first, size)
             : any_full_exponent32(first, size);
}

void TileChecker::check_entry(const format::ExceptionEntry& entry, std::uint64_t row_tile,
                              std::uint64_t group, int slot) const {
  const std::string where =
      "entry " + std::to_string(slot) + " of exception group " + std::to_string(group);
  const int rows = rows_of(row_tile);
  if (entry.row >= rows) {
    fail(where + ": row = " + std::to_string(entry.row) + ": must be 0 to " +
         std::to_string(rows - 1) + ", or 255 for an empty slot");
  }
  if (entry.k >= header_.k) {
    fail(where + ": k = " + std::to_string(entry.k) + ": must be below " +
         std::to_string(header_.k));
  }
  if (entry.zero != 0) {
    fail(where + ": last byte = " + std::to_string(entry.zero) + ": must be 0");
  }
  if (in_window(entry.bits, static_cast<int>(header_.window_base))) {
    fail(where + ": bits = " + std::to_string(entry.bits) +
         ": lies in the window, so it must not be an exception");
  }
  const std::byte* data = tile(row_tile, entry.k / format::tile_k);
  const auto at = format::fragment_slot(entry.row, static_cast<int>(entry.k % format::tile_k));
  const std::uint32_t nibble =
      load_word(data + format::nibble_word_offset(at)) & format::nibble_bits(at.index, 1, 7);
  if (data[format::low_byte_offset(at)] != std::byte{0} || nibble != 0) {
    fail(where + ": the tile must hold 0 for " +
         place(row_tile * format::tile_rows + entry.row, entry.k) + ", an exception");
  }
}

RowTileFacts TileChecker::check_groups(std::uint64_t row_tile) const {
  RowTileFacts facts;
  bool ended = false;  // an empty slot was seen
  std::uint64_t next_key = 0;
  const std::uint64_t extra = extra_begin_[row_tile + 1] - extra_begin_[row_tile];
  for (std::uint64_t i = 0; i <= extra; ++i) {
    const std::uint64_t group = i == 0 ? row_tile : row_tiles_ + extra_begin_[row_tile] + (i - 1);
    if (i != 0 && (ended || groups_[group].entries[0].row == format::unused_row)) {
      fail("exception group " + std::to_string(group) + " of row tile " + std::to_string(row_tile) +
           ": an earlier group has empty slots or this one is empty");
    }
    for (int slot = 0; slot < format::group_entries; ++slot) {
      const format::ExceptionEntry& entry = groups_[group].entries[slot];
      const std::string where =
          "entry " + std::to_string(slot) + " of exception group " + std::to_string(group);
      if (entry.row == format::unused_row) {
        ended = true;
        if (entry.k != 0 || entry.bits != 0 || entry.zero != 0) {
          fail(where + ": an empty slot must have k, bits and last byte 0");
        }
        continue;
      }
      if (ended) fail(where + ": follows an empty slot");
      check_entry(entry, row_tile, group, slot);
      const std::uint64_t key = std::uint64_t{entry.k} * format::tile_rows + entry.row;
      if (key < next_key) fail(where + ": entries must be sorted by (k, row), each once");
      next_key = key + 1;
      ++facts.exceptions;
      facts.has_nonfinite |= (entry.bits & 0x7F80) == 0x7F80;
    }
  }
  return facts;
}

// Window base 0 would have room for exponent 0, whose weights must be exceptions all the same.
void TileChecker::check_zero_exponents(std::uint64_t row_tile, std::uint64_t exceptions) const {
  std::uint64_t stand_ins = 0;
  for (std::uint64_t k = 0; k < header_.k; ++k) {
    const std::byte* data = tile(row_tile, k / format::tile_k);
    for (int row = 0; row < rows_of(row_tile); ++row) {
      const auto at = format::fragment_slot(row, static_cast<int>(k % format::tile_k));
      const auto low = std::to_integer<int>(data[format::low_byte_offset(at)]);
      const std::uint32_t word = load_word(data + format::nibble_word_offset(at));
      if (low >= 0x80 || (word & format::nibble_bits(at.index, 0, 7)) != 0) continue;
      if (low != 0 || (word & format::nibble_bits(at.index, 1, 0)) != 0) {
        fail(place(row_tile * format::tile_rows + static_cast<std::uint64_t>(row), k) +
             " has exponent 0 in its tile: it must be an exception");
      }
      ++stand_ins;
    }
  }
  if (stand_ins != exceptions) {
    fail("row tile " + std::to_string(row_tile) + " has " + std::to_string(stand_ins) +
         " weights of exponent 0 in its tiles and " + std::to_string(exceptions) +
         " exceptions: with window_base 0 the two must agree");
  }
}

RowTileFacts TileChecker::check_row_tile(std::uint64_t row_tile) const {
  check_padding(row_tile);
  if (header_.group_count == 0) return {0, any_nonfinite(row_tile)};
  const RowTileFacts facts = check_groups(row_tile);
  if (header_.window_base == 0) check_zero_exponents(row_tile, facts.exceptions);
  return facts;
}

}  // namespace slimgemm::codec
