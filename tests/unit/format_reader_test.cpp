// SPDX-License-Identifier: Apache-2.0
// from_bytes() on bytes that break one rule of docs/format.md each. The checksums are made right
// again after every change, so that it is the rule itself that is checked.
#include <slimgemm/packed.hpp>

#include "unit/codec_test_support.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

using format::ExceptionEntry;
using format::Header;
using test::Bytes;

void expect_refused(const Bytes& bytes, const std::string& part) {
  try {
    PackedMatrix::from_bytes(bytes);
    ADD_FAILURE() << "accepted; wanted an error with \"" << part << "\"";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::corrupt_data) << e.what();
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos)
        << "\"" << part << "\" is not in \"" << e.what() << "\"";
  }
}

// 20 x 70: two row tiles, two k tiles. Row tile 0 has 20 exceptions (two groups), row tile 1 one.
Bytes split_bytes() {
  test::Bf16Vector w = test::mixed_weights(std::size_t{20} * 70, 100, 0, 1);
  for (std::size_t i = 0; i < 20; ++i) w[(i % 16) * 70 + 3 * i] = 0x0001;
  w[17 * 70 + 69] = 0x8000;
  return test::copy_bytes(pack(w, 20, 70, {.max_exception_rate = 1}));
}
Bytes raw16_bytes() {
  return test::copy_bytes(pack(test::mixed_weights(std::size_t{20} * 70, 100, 0.3, 1), 20, 70));
}
Bytes raw32_bytes() { return test::copy_bytes(pack(std::vector<float>(20 * 70, 1.5F), 20, 70)); }

class Change {
 public:
  explicit Change(Bytes bytes) : bytes_(std::move(bytes)), header(test::header_of(bytes_)) {}

  ExceptionEntry& entry(std::size_t group, std::size_t slot) {
    auto* groups = reinterpret_cast<format::ExceptionGroup*>(bytes_.data() + header.groups_offset);
    return groups[group].entries[slot];
  }
  std::uint32_t& extra_begin(std::size_t row_tile) {
    return reinterpret_cast<std::uint32_t*>(bytes_.data() + header.extra_offset)[row_tile];
  }
  std::byte& tile_byte(std::size_t tile, std::size_t offset) {
    const std::size_t tile_bytes = header.tiles_bytes / 4;
    return bytes_[header.tiles_offset + tile * tile_bytes + offset];
  }
  std::byte& byte(std::size_t offset) { return bytes_[offset]; }
  Bytes& bytes() { return bytes_; }

  void refused(const std::string& part) {
    test::seal(bytes_, header);
    SCOPED_TRACE(part);
    expect_refused(bytes_, part);
  }

 private:
  Bytes bytes_;

 public:
  Header header;
};

TEST(FormatReader, AcceptsTheseBytesUnchanged) {
  for (const Bytes& bytes : {split_bytes(), raw16_bytes(), raw32_bytes()}) {
    EXPECT_NO_THROW(PackedMatrix::from_bytes(bytes));
  }
  const Header h = test::header_of(split_bytes());
  EXPECT_EQ(h.window_base, 100U);
  EXPECT_EQ(h.exception_count, 21U);
  EXPECT_EQ(h.group_count, 3U);
}

TEST(FormatReader, BytesAtAnOddAddress) {
  const Bytes bytes = split_bytes();
  Bytes shifted(bytes.size() + 1);
  std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
  EXPECT_NO_THROW(PackedMatrix::from_bytes(std::span(shifted).subspan(1)));
}

TEST(FormatReader, CutShort) {
  const Bytes bytes = split_bytes();
  for (std::size_t size = 0; size < bytes.size(); size += size < 300 ? 1 : 97) {
    const Bytes part(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size));
    expect_refused(part, size < sizeof(Header) ? "header alone takes 128" : "cut short");
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  expect_refused(longer, "total_bytes");
}

struct FieldCase {
  const char* part;
  std::function<void(Header&)> change;
};

TEST(FormatReader, HeaderFieldsOfSplit12) {
  const FieldCase cases[] = {
      {"magic", [](Header& h) { h.magic ^= 1; }},
      {"version = 2: this library reads version 1", [](Header& h) { h.version = 2; }},
      {"version = 0", [](Header& h) { h.version = 0; }},
      {"encoding = 0", [](Header& h) { h.encoding = 0; }},
      {"encoding = 4", [](Header& h) { h.encoding = 4; }},
      {"n = 0: must be 1 to 2147483647", [](Header& h) { h.n = 0; }},
      {"n = 2147483648", [](Header& h) { h.n = std::uint64_t{1} << 31; }},
      {"n = 18446744073709551615", [](Header& h) { h.n = ~std::uint64_t{0}; }},
      {"k = 0", [](Header& h) { h.k = 0; }},
      {"k = 2147483648", [](Header& h) { h.k = std::uint64_t{1} << 31; }},
      {"window_base = 101: must be even", [](Header& h) { h.window_base = 101; }},
      {"window_base = 240: must be 0 to 238", [](Header& h) { h.window_base = 240; }},
      {"flags = 7", [](Header& h) { h.flags |= 4; }},
      {"flags = 2147483649", [](Header& h) { h.flags = 0x80000001; }},
      {"exception_count = 1401: must be 0 to 1400", [](Header& h) { h.exception_count = 1401; }},
      {"exception_count = 20: must be 21", [](Header& h) { h.exception_count = 20; }},
      {"tiles_offset = 128: must be 256", [](Header& h) { h.tiles_offset = 128; }},
      {"tiles_bytes = 6145", [](Header& h) { h.tiles_bytes += 1; }},
      {"groups_offset = 0", [](Header& h) { h.groups_offset = 0; }},
      {"group_count = 1", [](Header& h) { h.group_count = 1; }},
      {"group_count = 4294967296", [](Header& h) { h.group_count = std::uint64_t{1} << 32; }},
      {"extra_offset = 6784", [](Header& h) { h.extra_offset -= 128; }},
      {"total_bytes", [](Header& h) { h.total_bytes += 4; }},
      {"reserved[0] = 1", [](Header& h) { h.reserved[0] = 1; }},
      {"reserved[1] = 9", [](Header& h) { h.reserved[1] = 9; }},
  };
  for (const FieldCase& c : cases) {
    Change change(split_bytes());
    if (std::string(c.part) == "flags = 7") change.header.flags |= format::known_flags;
    c.change(change.header);
    change.refused(c.part);
  }
}

TEST(FormatReader, HeaderFieldsOfRaw) {
  const FieldCase cases[] = {
      {"window_base = 2: must be 0", [](Header& h) { h.window_base = 2; }},
      {"exception_count = 1: must be 0", [](Header& h) { h.exception_count = 1; }},
      {"group_count = 2: must be 0", [](Header& h) { h.group_count = 2; }},
      {"groups_offset = 256: must be 0", [](Header& h) { h.groups_offset = 256; }},
      {"extra_offset = 256: must be 0", [](Header& h) { h.extra_offset = 256; }},
  };
  for (const FieldCase& c : cases) {
    for (const Bytes& bytes : {raw16_bytes(), raw32_bytes()}) {
      Change change(bytes);
      c.change(change.header);
      change.refused(c.part);
    }
  }
}

// Dimensions whose sections would be larger than the bytes, up to those that overflow 64 bits.
TEST(FormatReader, HugeDimensions) {
  constexpr std::uint64_t most = max_dimension;
  for (const auto& [n, k] :
       {std::pair{most, most}, {most, std::uint64_t{1}}, {std::uint64_t{1}, most}}) {
    for (const Bytes& bytes : {split_bytes(), raw16_bytes(), raw32_bytes()}) {
      Change change(bytes);
      change.header.n = n;
      change.header.k = k;
      change.header.group_count = change.header.group_count == 0 ? 0 : (n + 15) / 16;
      change.refused(n == most && k == most && change.header.encoding == 3 ? "2^64"
                                                                           : "tiles_bytes");
    }
  }
}

TEST(FormatReader, Checksums) {
  if (!checksums_available()) GTEST_SKIP() << "this build has no XXH3";
  Bytes bytes = split_bytes();
  bytes[300] ^= std::byte{1};
  expect_refused(bytes, "payload_xxh3");
  bytes[300] ^= std::byte{1};
  bytes[16] ^= std::byte{1};
  expect_refused(bytes, "header_xxh3");
  bytes[16] ^= std::byte{1};
  bytes[104] ^= std::byte{1};
  expect_refused(bytes, "header_xxh3");
}

TEST(FormatReader, WithoutChecksums) {
  Change change(split_bytes());
  change.header.flags &= ~std::uint32_t{format::has_checksums};
  change.header.payload_xxh3 = 0;
  change.header.header_xxh3 = 0;
  test::seal(change.bytes(), change.header);
  EXPECT_NO_THROW(PackedMatrix::from_bytes(change.bytes()));
  change.header.payload_xxh3 = 5;
  change.refused("payload_xxh3 = 5: must be 0");
  change.header.payload_xxh3 = 0;
  change.header.header_xxh3 = 6;
  change.refused("header_xxh3 = 6: must be 0");
}

TEST(FormatReader, NonfiniteFlag) {
  for (const Bytes& bytes : {split_bytes(), raw32_bytes()}) {
    Change change(bytes);
    change.header.flags |= format::has_nonfinite;
    change.refused("no weight is Inf or NaN");
  }
  Change split(split_bytes());
  split.entry(0, 0).bits = 0xFF80;
  split.refused("some weight is Inf or NaN");
  Change raw16(raw16_bytes());  // random patterns: some are NaN
  raw16.header.flags &= ~std::uint32_t{format::has_nonfinite};
  raw16.refused("some weight is Inf or NaN");
  Change raw32(raw32_bytes());
  raw32.tile_byte(0, 2) = std::byte{0x80};
  raw32.tile_byte(0, 3) = std::byte{0x7F};
  raw32.refused("some weight is Inf or NaN");
}

TEST(FormatReader, PaddingBetweenSections) {
  for (const std::size_t offset : {128, 200, 255}) {
    Change change(split_bytes());
    change.byte(offset) = std::byte{7};
    change.refused("padding byte " + std::to_string(offset) + " = 7");
  }
  Change change(split_bytes());
  const std::size_t last = change.header.extra_offset - 1;  // 3 groups leave 128 bytes
  change.byte(last) = std::byte{1};
  change.refused("padding byte " + std::to_string(last) + " = 1");
}

// Tile 1 holds columns 64..127 of which 64..69 exist; tile 2 rows 16..31 of which 16..19 exist.
TEST(FormatReader, PaddingInsideTiles) {
  struct Place {
    std::size_t tile;
    int row;
    int k;
    const char* name;
  };
  const Place places[] = {{1, 0, 6, "tile (0, 1)"}, {1, 15, 63, "tile (0, 1)"},
                          {2, 4, 0, "tile (1, 0)"}, {2, 15, 63, "tile (1, 0)"},
                          {3, 3, 6, "tile (1, 1)"}, {3, 4, 5, "tile (1, 1)"}};
  for (const Place& p : places) {
    const format::FragmentSlot s = format::fragment_slot(p.row, p.k);
    const auto at = [](int offset) { return static_cast<std::size_t>(offset); };
    Change low(split_bytes());
    low.tile_byte(p.tile, at(format::low_byte_offset(s))) = std::byte{1};
    low.refused(p.name);
    for (const std::uint32_t sign : {0U, 1U}) {
      Change nibble(split_bytes());
      const std::uint32_t bits = format::nibble_bits(s.index, sign, sign ^ 1U);
      for (int b = 0; b < 4; ++b) {
        nibble.tile_byte(p.tile, at(format::nibble_word_offset(s) + b)) |=
            static_cast<std::byte>(bits >> (8 * b));
      }
      nibble.refused(p.name);
    }
    Change raw16(raw16_bytes());
    raw16.tile_byte(p.tile, at(format::raw16_offset(s) + 1)) = std::byte{0x80};
    raw16.refused(p.name);
    Change raw32(raw32_bytes());
    raw32.tile_byte(p.tile, at(format::raw32_offset(s) + 3)) = std::byte{0x80};
    raw32.refused(p.name);
  }
}

TEST(FormatReader, ExtraBegin) {
  Change first(split_bytes());
  first.extra_begin(0) = 1;
  first.refused("extra_begin[0] = 1: must be 0");
  Change falling(split_bytes());
  falling.extra_begin(1) = 2;
  falling.refused("extra_begin[2] = 1: must be at least extra_begin[1] = 2");
  Change last(split_bytes());
  last.extra_begin(2) = 2;
  last.refused("group_count = 3: must be 4");
  Change moved(split_bytes());  // the extra group goes to row tile 1
  moved.extra_begin(1) = 0;
  moved.refused("exception group 2 of row tile 1");
}

struct EntryCase {
  const char* part;
  std::size_t group;
  std::size_t slot;
  std::function<void(ExceptionEntry&)> change;
};

TEST(FormatReader, Entries) {
  const EntryCase cases[] = {
      {"entry 0 of exception group 0: row = 16", 0, 0, [](auto& e) { e.row = 16; }},
      {"entry 0 of exception group 1: row = 4: must be 0 to 3", 1, 0, [](auto& e) { e.row = 4; }},
      {"entry 0 of exception group 1: k = 70: must be below 70", 1, 0, [](auto& e) { e.k = 70; }},
      {"k = 4294967295", 1, 0, [](auto& e) { e.k = 0xFFFFFFFF; }},
      {"last byte = 1", 0, 5, [](auto& e) { e.zero = 1; }},
      {"lies in the window", 0, 5, [](auto& e) { e.bits = test::bf16_bits(0, 100, 0); }},
      {"lies in the window", 0, 5, [](auto& e) { e.bits = test::bf16_bits(1, 115, 9); }},
      {"the tile must hold 0 for weight (16, 69)", 1, 0, [](auto& e) { e.row = 0; }},
      {"empty slot must have", 1, 3, [](auto& e) { e.k = 1; }},
      {"empty slot must have", 1, 3, [](auto& e) { e.bits = 1; }},
      {"empty slot must have", 2, 15, [](auto& e) { e.zero = 1; }},
      {"follows an empty slot", 0, 7,
       [](auto& e) {
         e = {0, 0, format::unused_row, 0};
       }},
      {"exception group 2 of row tile 0", 0, 15,
       [](auto& e) {
         e = {0, 0, format::unused_row, 0};
       }},
      {"exception group 2 of row tile 0", 2, 0,
       [](auto& e) {
         e = {0, 0, format::unused_row, 0};
       }},
  };
  for (const EntryCase& c : cases) {
    Change change(split_bytes());
    c.change(change.entry(c.group, c.slot));
    change.refused(c.part);
  }
}

TEST(FormatReader, EntriesOutOfOrder) {
  Change swapped(split_bytes());
  std::swap(swapped.entry(0, 3), swapped.entry(0, 4));
  swapped.refused("sorted by (k, row)");
  Change twice(split_bytes());
  twice.entry(0, 4) = twice.entry(0, 3);
  twice.refused("sorted by (k, row)");
  Change across(split_bytes());  // over the border of two groups
  std::swap(across.entry(0, 15), across.entry(2, 0));
  across.refused("sorted by (k, row)");
}

TEST(FormatReader, AnEntryLessThanCounted) {
  Change change(split_bytes());
  change.entry(1, 0) = {0, 0, format::unused_row, 0};
  change.refused("exception_count = 21: must be 20");
}

// An exception's slot in the tile must hold the stand-in.
TEST(FormatReader, StandIn) {
  Change change(split_bytes());
  const auto entry = change.entry(1, 0);
  EXPECT_EQ(entry.k, 69U);
  EXPECT_EQ(entry.row, 1);
  const format::FragmentSlot s = format::fragment_slot(1, 5);
  change.tile_byte(3, static_cast<std::size_t>(format::low_byte_offset(s))) = std::byte{1};
  change.refused("the tile must hold 0 for weight (17, 69)");
}

// Window base 0 has room for exponent 0, which must be an exception all the same.
TEST(FormatReader, ZeroExponentsWithWindowBaseZero) {
  test::Bf16Vector w(std::size_t{20} * 70, 0x0080);  // exponent 1
  w[5] = 0x0000;
  w[6] = 0x8012;
  const Bytes bytes = test::copy_bytes(pack(w, 20, 70, {.max_exception_rate = 1}));
  ASSERT_EQ(test::header_of(bytes).window_base, 0U);
  EXPECT_NO_THROW(PackedMatrix::from_bytes(bytes));
  const format::FragmentSlot s = format::fragment_slot(0, 0);
  const auto low = static_cast<std::size_t>(format::low_byte_offset(s));
  Change subnormal(bytes);
  subnormal.tile_byte(0, low) = std::byte{0x01};
  subnormal.refused("weight (0, 0) has exponent 0");
  Change zero(bytes);
  zero.tile_byte(0, low) = std::byte{0};
  zero.refused("row tile 0 has 3 weights of exponent 0 in its tiles and 2 exceptions");
  Change minus_zero(bytes);
  minus_zero.tile_byte(0, low) = std::byte{0};
  minus_zero.tile_byte(0, static_cast<std::size_t>(format::nibble_word_offset(s))) =
      std::byte{0x80};
  minus_zero.refused("weight (0, 0) has exponent 0");
}

}  // namespace
}  // namespace slimgemm
