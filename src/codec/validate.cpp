// SPDX-License-Identifier: Apache-2.0
#include "codec/validate.hpp"

#include <slimgemm/error.hpp>

#include "codec/checksum.hpp"
#include "codec/row_tiles.hpp"
#include "codec/sections.hpp"
#include "codec/tile_checks.hpp"
#include "codec/window.hpp"

#include <atomic>
#include <cstring>
#include <string>

namespace slimgemm {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::corrupt_data, message);
}

[[noreturn]] void fail_field(const char* field, std::uint64_t value, const std::string& limit) {
  fail(std::string(field) + " = " + std::to_string(value) + ": must be " + limit);
}

void expect(const char* field, std::uint64_t value, std::uint64_t wanted, const char* why) {
  if (value != wanted) fail_field(field, value, std::to_string(wanted) + " (" + why + ")");
}

void expect_range(const char* field, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value < low || value > high) {
    fail_field(field, value, std::to_string(low) + " to " + std::to_string(high));
  }
}

void check_identity(const format::Header& h) {
  if (h.magic != format::magic) {
    fail("magic is not \"SLIMPACK\": this is not a packed matrix");
  }
  if (h.version != format::version) {
    fail("version = " + std::to_string(h.version) + ": this library reads version " +
         std::to_string(format::version) + " only. Pack the weights again");
  }
  if ((h.flags & ~std::uint32_t{format::known_flags}) != 0) {
    fail_field("flags", h.flags, "a sum of 1 (checksums) and 2 (Inf or NaN)");
  }
  if ((h.flags & format::has_checksums) == 0) {
    expect("payload_xxh3", h.payload_xxh3, 0, "flags say there are no checksums");
    expect("header_xxh3", h.header_xxh3, 0, "flags say there are no checksums");
    return;
  }
  if (!checksums_available()) return;
  const std::uint64_t actual =
      checksum(std::as_bytes(std::span(&h, 1)).first(offsetof(format::Header, header_xxh3)));
  expect("header_xxh3", h.header_xxh3, actual, "the header's checksum; the data is damaged");
}

void check_fields(const format::Header& h) {
  constexpr std::uint64_t limit = max_dimension;
  expect_range("encoding", h.encoding, 1, 3);
  expect_range("n", h.n, 1, limit);
  expect_range("k", h.k, 1, limit);
  const bool split = h.encoding == static_cast<std::uint32_t>(Encoding::split12);
  if (split) {
    expect_range("window_base", h.window_base, 0, format::max_window_base);
    if (h.window_base % 2 != 0) fail_field("window_base", h.window_base, "even");
    expect_range("exception_count", h.exception_count, 0, h.n * h.k);
    expect_range("group_count", h.group_count, format::tiles_along(h.n, format::tile_rows),
                 max_group_count);
  } else {
    expect("window_base", h.window_base, 0, "raw encodings have no window");
    expect("exception_count", h.exception_count, 0, "raw encodings have no exceptions");
    expect("group_count", h.group_count, 0, "raw encodings have no exceptions");
  }
  expect("reserved[0]", h.reserved[0], 0, "version 1 leaves it free");
  expect("reserved[1]", h.reserved[1], 0, "version 1 leaves it free");
}

void check_sections(const format::Header& h, std::uint64_t size) {
  const auto wanted = lay_out({.encoding = static_cast<Encoding>(h.encoding),
                               .n = h.n,
                               .k = h.k,
                               .window_base = static_cast<int>(h.window_base),
                               .exception_count = h.exception_count,
                               .group_count = h.group_count});
  if (!wanted) {
    fail("n = " + std::to_string(h.n) + ", k = " + std::to_string(h.k) +
         ": the packed matrix would exceed 2^64 - 1 bytes");
  }
  constexpr const char* why = "from encoding, n, k and group_count";
  expect("tiles_offset", h.tiles_offset, wanted->tiles_offset, why);
  expect("tiles_bytes", h.tiles_bytes, wanted->tiles_bytes, why);
  expect("groups_offset", h.groups_offset, wanted->groups_offset, why);
  expect("extra_offset", h.extra_offset, wanted->extra_offset, why);
  expect("total_bytes", h.total_bytes, wanted->total_bytes, why);
  if (size != h.total_bytes) {
    fail("the packed data has " + std::to_string(size) + " bytes: total_bytes says " +
         std::to_string(h.total_bytes) + (size < h.total_bytes ? "; it is cut short" : ""));
  }
}

void check_gap(std::span<const std::byte> packed, std::uint64_t begin, std::uint64_t end) {
  for (std::uint64_t i = begin; i < end; ++i) {
    if (packed[i] != std::byte{0}) {
      fail("padding byte " + std::to_string(i) + " = " +
           std::to_string(std::to_integer<int>(packed[i])) + ": must be 0");
    }
  }
}

void check_gaps(std::span<const std::byte> packed, const format::Header& h) {
  check_gap(packed, sizeof(format::Header), h.tiles_offset);
  if (h.group_count == 0) return;
  check_gap(packed, h.tiles_offset + h.tiles_bytes, h.groups_offset);
  check_gap(packed, h.groups_offset + h.group_count * sizeof(format::ExceptionGroup),
            h.extra_offset);
}

void check_extra_begin(std::span<const std::uint32_t> extra_begin, const format::Header& h) {
  expect("extra_begin[0]", extra_begin[0], 0, "its start");
  for (std::size_t r = 1; r < extra_begin.size(); ++r) {
    if (extra_begin[r] < extra_begin[r - 1]) {
      fail("extra_begin[" + std::to_string(r) + "] = " + std::to_string(extra_begin[r]) +
           ": must be at least extra_begin[" + std::to_string(r - 1) +
           "] = " + std::to_string(extra_begin[r - 1]));
    }
  }
  expect("group_count", h.group_count, extra_begin.size() - 1 + extra_begin.back(),
         "row tiles + the last extra_begin");
}

}  // namespace

format::Header check_header(std::span<const std::byte> packed) {
  if (packed.size() < sizeof(format::Header)) {
    fail("the packed data has " + std::to_string(packed.size()) +
         " bytes: the header alone takes " + std::to_string(sizeof(format::Header)));
  }
  format::Header header;
  std::memcpy(&header, packed.data(), sizeof(header));
  check_identity(header);
  check_fields(header);
  check_sections(header, packed.size());
  return header;
}

void check_payload(std::span<const std::byte> packed, const format::Header& h, std::uint64_t xxh3) {
  if ((h.flags & format::has_checksums) != 0 && checksums_available()) {
    expect("payload_xxh3", h.payload_xxh3, xxh3,
           "the checksum of the payload; the data is damaged");
  }
  check_gaps(packed, h);
  const codec::TileChecker checker(packed, h);
  const std::uint64_t row_tiles = format::tiles_along(h.n, format::tile_rows);
  if (h.group_count != 0) {
    check_extra_begin(
        {reinterpret_cast<const std::uint32_t*>(packed.data() + h.extra_offset), row_tiles + 1}, h);
  }
  std::atomic<std::uint64_t> exceptions{0};
  std::atomic<bool> nonfinite{false};
  codec::for_row_tile_ranges(h.n, h.k, 0, [&](std::uint64_t begin, std::uint64_t end) {
    codec::RowTileFacts sum;
    for (std::uint64_t r = begin; r < end; ++r) {
      const codec::RowTileFacts facts = checker.check_row_tile(r);
      sum.exceptions += facts.exceptions;
      sum.has_nonfinite |= facts.has_nonfinite;
    }
    exceptions += sum.exceptions;
    if (sum.has_nonfinite) nonfinite = true;
  });
  expect("exception_count", h.exception_count, exceptions, "entries in the groups");
  if (((h.flags & format::has_nonfinite) != 0) != nonfinite) {
    fail_field("flags", h.flags,
               nonfinite ? "set in bit 1: some weight is Inf or NaN"
                         : "clear in bit 1: no weight is Inf or NaN");
  }
}

}  // namespace slimgemm
