// SPDX-License-Identifier: Apache-2.0
// Device images in host memory: from a packed matrix, and back.
#include <slimgemm/device_image.hpp>

#include "codec/packed_access.hpp"
#include "codec/sections.hpp"
#include "codec/window.hpp"
#include "format/device_image.hpp"
#include "support/parallel.hpp"
#include "support/refuse.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

void check_range(const char* what, std::int64_t value, std::int64_t min, std::int64_t max) {
  if (value < min || value > max) {
    refuse_argument("layout." + std::string(what) + " is " + std::to_string(value) +
                    ": it must be " + std::to_string(min) + " to " + std::to_string(max));
  }
}

format::ImageOffsets offsets_of(const ImageLayout& layout) {
  check_range("n", layout.n, 1, max_dimension);
  check_range("k", layout.k, 1, max_dimension);
  check_range("encoding", static_cast<std::int64_t>(layout.encoding), 1, 3);
  return {layout.encoding, static_cast<std::uint64_t>(layout.n),
          static_cast<std::uint64_t>(layout.k)};
}

void check_size(const ImageLayout& layout, std::size_t size) {
  if (size != layout.size_bytes()) {
    refuse_argument("the image has " + std::to_string(size) + " bytes: its layout says " +
                    std::to_string(layout.size_bytes()));
  }
}

bool is_used(const format::ExceptionEntry& entry) { return entry.row != format::unused_row; }

void write_head(const PackedMatrix& packed, std::size_t r, std::uint32_t more_begin,
                const format::ImageOffsets& at, std::byte* image) {
  const auto groups = PackedAccess::groups(packed);
  const auto extra_begin = PackedAccess::extra_begin(packed);
  const std::uint32_t extra = extra_begin[r + 1] - extra_begin[r];
  const std::uint32_t more = format::groups_after_head(extra);
  const format::ExceptionGroup* const extras = groups.data() + at.row_tiles + extra_begin[r];
  format::ExceptionHead head;
  std::memset(&head, 0, sizeof(head));
  for (format::ExceptionEntry& entry : head.groups[1].entries) entry.row = format::unused_row;
  head.groups[0] = groups[r];
  if (extra > 0) head.groups[1] = extras[0];
  head.groups[0].entries[0].zero = more > 0 ? 1 : 0;
  head.more_begin = more_begin;
  head.more_end = more_begin + more;
  std::byte* const to = image + r * at.row_tile_bytes + at.head;
  std::memcpy(to, &head, sizeof(head));
  std::memset(to + sizeof(head), 0, at.row_tile_bytes - at.head - sizeof(head));
  if (more > 0) {
    std::memcpy(image + at.more + more_begin * sizeof(format::ExceptionGroup), extras + 1,
                more * sizeof(format::ExceptionGroup));
  }
}

/// Of every row tile, where its groups after the head begin; one value more: their number.
std::vector<std::uint32_t> more_begins(const PackedMatrix& packed) {
  const auto extra_begin = PackedAccess::extra_begin(packed);
  std::vector<std::uint32_t> begins(std::max<std::size_t>(extra_begin.size(), 1), 0);
  for (std::size_t r = 0; r + 1 < extra_begin.size(); ++r) {
    begins[r + 1] = begins[r] + format::groups_after_head(extra_begin[r + 1] - extra_begin[r]);
  }
  return begins;
}

void check_matches(const PackedMatrix& packed, const ImageLayout& layout) {
  if (packed.n() != layout.n || packed.k() != layout.k) {
    refuse_argument("the packed matrix is " + std::to_string(packed.n()) + " x " +
                    std::to_string(packed.k()) + ": the image's layout says " +
                    std::to_string(layout.n) + " x " + std::to_string(layout.k));
  }
  if (packed.encoding() != layout.encoding || packed.window_base() != layout.window_base) {
    refuse_argument(std::string("the packed matrix is ") + name(packed.encoding()) +
                    " with window " + std::to_string(packed.window_base()) +
                    ": the image's layout says " + name(layout.encoding) + " with window " +
                    std::to_string(layout.window_base));
  }
  const bool nonfinite = (PackedAccess::header(packed).flags & format::has_nonfinite) != 0;
  if (nonfinite && !layout.has_nonfinite && packed.dtype() == DType::f32) {
    refuse_argument("a weight is Inf or NaN: the image's layout says that none is");
  }
}

/// The tiles of a row tile, from the packed matrix to the image or back.
void copy_tiles(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}
void pairs_to_halves(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(format::HalvesOfPair)) {
    std::uint32_t weights[2];
    std::memcpy(weights, from + i, sizeof(weights));
    const format::HalvesOfPair halves = format::halves_of_pair(weights[0], weights[1]);
    std::memcpy(to + i, &halves, sizeof(halves));
  }
}
void halves_to_pairs(std::byte* to, const std::byte* from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += sizeof(format::HalvesOfPair)) {
    format::HalvesOfPair halves;
    std::memcpy(&halves, from + i, sizeof(halves));
    const std::uint32_t weights[2] = {format::first_of_pair(halves),
                                      format::second_of_pair(halves)};
    std::memcpy(to + i, weights, sizeof(weights));
  }
}

[[noreturn]] void corrupt(std::size_t row_tile, const std::string& what) {
  throw Error(ErrorCode::corrupt_data,
              "device image, row tile " + std::to_string(row_tile) + ": " + what);
}

format::ExceptionHead read_head(const ImageLayout& layout, const format::ImageOffsets& at,
                                const std::byte* image, std::size_t r) {
  format::ExceptionHead head;
  std::memcpy(&head, image + r * at.row_tile_bytes + at.head, sizeof(head));
  if (head.more_begin > head.more_end || head.more_end > layout.more_groups) {
    corrupt(r, "its exception groups " + std::to_string(head.more_begin) + " to " +
                   std::to_string(head.more_end) + " are not within " +
                   std::to_string(layout.more_groups));
  }
  head.groups[0].entries[0].zero = 0;
  return head;
}

std::uint32_t extra_of(const format::ExceptionHead& head) {
  return (is_used(head.groups[1].entries[0]) ? 1 : 0) + head.more_end - head.more_begin;
}

/// Whether a weight is Inf or NaN, from sections that are complete: images are written more than
/// once, so their layout does not say.
bool any_nonfinite(const format::Header& header, const std::byte* bytes) {
  const auto any = [](const auto* begin, std::uint64_t size, auto exponent) {
    return std::any_of(begin, begin + size, [&](auto v) { return (v & exponent) == exponent; });
  };
  const std::byte* const tiles = bytes + header.tiles_offset;
  switch (static_cast<Encoding>(header.encoding)) {
    case Encoding::raw16:
      return any(reinterpret_cast<const std::uint16_t*>(tiles), header.tiles_bytes / 2,
                 std::uint16_t{0x7F80});
    case Encoding::raw32:
      return any(reinterpret_cast<const std::uint32_t*>(tiles), header.tiles_bytes / 4,
                 std::uint32_t{0x7F800000});
    case Encoding::split12:
      break;
  }
  const auto* const groups =
      reinterpret_cast<const format::ExceptionGroup*>(bytes + header.groups_offset);
  return std::any_of(groups, groups + header.group_count, [](const auto& group) {
    return std::any_of(std::begin(group.entries), std::end(group.entries), [](const auto& entry) {
      return is_used(entry) && (entry.bits & 0x7F80) == 0x7F80;
    });
  });
}

std::uint64_t count_used(const format::ExceptionGroup& group) {
  return static_cast<std::uint64_t>(std::count_if(std::begin(group.entries),
                                                  std::end(group.entries),
                                                  [](const auto& e) { return is_used(e); }));
}

}  // namespace

std::uint64_t ImageLayout::size_bytes() const {
  check_range("more_groups", more_groups, 0, max_dimension);
  check_range("window_base", window_base, 0, format::max_window_base);
  return offsets_of(*this).more +
         static_cast<std::uint64_t>(more_groups) * sizeof(format::ExceptionGroup);
}

std::int64_t default_spare_groups(std::int64_t n, std::int64_t k) {
  constexpr std::int64_t tiles_per_group = 128;
  constexpr std::int64_t least = 2;
  const auto tiles = static_cast<std::int64_t>(
      format::tiles_along(static_cast<std::uint64_t>(n), format::tile_rows) *
      format::tiles_along(static_cast<std::uint64_t>(k), format::tile_k));
  return std::max(least, tiles / tiles_per_group);
}

void check_spare_groups(std::int64_t spare_groups) {
  constexpr std::int64_t most = max_dimension / 4;  // rounded up it must fit, too
  if (spare_groups < 0 || spare_groups > most) {
    refuse_argument("spare_groups is " + std::to_string(spare_groups) + ": it must be 0 to " +
                    std::to_string(most));
  }
}

ImageLayout image_layout(const PackedMatrix& packed, std::int64_t spare_groups) {
  check_spare_groups(spare_groups);
  const bool split12 = packed.encoding() == Encoding::split12;
  return {.n = packed.n(),
          .k = packed.k(),
          .encoding = packed.encoding(),
          .window_base = packed.window_base(),
          .has_nonfinite = (PackedAccess::header(packed).flags & format::has_nonfinite) != 0,
          .more_groups =
              split12 ? format::groups_with_spare(more_begins(packed).back(), spare_groups) : 0};
}

void write_image(const PackedMatrix& packed, const ImageLayout& layout,
                 std::span<std::byte> image) {
  check_matches(packed, layout);
  check_size(layout, image.size());
  const format::ImageOffsets at = offsets_of(layout);
  const bool split12 = layout.encoding == Encoding::split12;
  const std::vector<std::uint32_t> begins = more_begins(packed);
  if (begins.back() > layout.more_groups) {
    refuse_argument("the weights have " + std::to_string(begins.back()) +
                    " exception groups beyond the heads: the image has room for " +
                    std::to_string(layout.more_groups));
  }
  const std::byte* const tiles = PackedAccess::tiles(packed).data();
  const auto write = layout.encoding == Encoding::raw32 ? pairs_to_halves : copy_tiles;
  parallel_for(
      static_cast<std::int64_t>(at.row_tiles), 1, 0, [&](std::int64_t begin, std::int64_t end) {
        for (auto r = static_cast<std::size_t>(begin); r < static_cast<std::size_t>(end); ++r) {
          write(image.data() + r * at.row_tile_bytes, tiles + r * at.head, at.head);
          if (split12) write_head(packed, r, begins[r], at, image.data());
        }
      });
  if (!split12) return;
  // The room that is left: no kernel reads it, but equal weights give equal images.
  const std::size_t used = at.more + begins.back() * sizeof(format::ExceptionGroup);
  std::memset(image.data() + used, 0, image.size() - used);
}

PackedMatrix read_image(const ImageLayout& layout, std::span<const std::byte> image) {
  check_size(layout, image.size());
  const format::ImageOffsets at = offsets_of(layout);
  const bool split12 = layout.encoding == Encoding::split12;
  Contents contents{.encoding = layout.encoding,
                    .n = static_cast<std::uint64_t>(layout.n),
                    .k = static_cast<std::uint64_t>(layout.k),
                    .window_base = layout.window_base};
  std::vector<std::uint32_t> extra_begin(split12 ? at.row_tiles + 1 : 0, 0);
  const auto* const more = reinterpret_cast<const format::ExceptionGroup*>(image.data() + at.more);
  for (std::size_t r = 0; split12 && r < at.row_tiles; ++r) {
    const format::ExceptionHead head = read_head(layout, at, image.data(), r);
    extra_begin[r + 1] = extra_begin[r] + extra_of(head);
    contents.exception_count += count_used(head.groups[0]) + count_used(head.groups[1]);
    for (std::uint32_t i = head.more_begin; i < head.more_end; ++i) {
      contents.exception_count += count_used(more[i]);
    }
  }
  if (split12) contents.group_count = at.row_tiles + extra_begin.back();

  const format::Header header = make_header(contents);
  AlignedBuffer buffer(header.total_bytes);
  std::byte* const tiles = buffer.data() + header.tiles_offset;
  const auto read = layout.encoding == Encoding::raw32 ? halves_to_pairs : copy_tiles;
  for (std::size_t r = 0; r < at.row_tiles; ++r) {
    read(tiles + r * at.head, image.data() + r * at.row_tile_bytes, at.head);
  }
  if (split12) {
    auto* const groups =
        reinterpret_cast<format::ExceptionGroup*>(buffer.data() + header.groups_offset);
    for (std::size_t r = 0; r < at.row_tiles; ++r) {
      const format::ExceptionHead head = read_head(layout, at, image.data(), r);
      format::ExceptionGroup* extras = groups + at.row_tiles + extra_begin[r];
      groups[r] = head.groups[0];
      if (extra_of(head) > 0) *extras++ = head.groups[1];
      std::copy(more + head.more_begin, more + head.more_end, extras);
    }
    std::memcpy(buffer.data() + header.extra_offset, extra_begin.data(),
                extra_begin.size() * sizeof(std::uint32_t));
  }
  finish(buffer, header, any_nonfinite(header, buffer.data()));
  return PackedAccess::check_and_adopt(std::move(buffer));
}

}  // namespace slimgemm
