// SPDX-License-Identifier: Apache-2.0
// The host packer. BF16: count the exponents, choose window and encoding, count the exceptions of
// every row tile, then write each row tile (its tiles and its exception groups) in one pass. Every
// pass runs over row tiles or elements in parallel, and what it writes does not depend on how.
#include "codec/pack_plan.hpp"

#include "codec/checksum.hpp"
#include "codec/exponents.hpp"
#include "codec/packed_access.hpp"
#include "codec/row_tiles.hpp"
#include "codec/sections.hpp"
#include "codec/tile_codec.hpp"
#include "codec/window.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

namespace slimgemm {
namespace {

template <class T>
void check_matrix(std::span<const T> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options) {
  check_pack_arguments(n, k, options);
  const auto size = static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(k);
  if (w.size() != size) {
    throw Error(ErrorCode::invalid_argument,
                "w has " + std::to_string(w.size()) + " elements: must be n * k = " +
                    std::to_string(n) + " * " + std::to_string(k) + " = " + std::to_string(size));
  }
}

template <class T>
struct Matrix {
  const T* data;
  std::size_t n;
  std::size_t k;
};

// A 16 x 64 tile of the matrix where it lies, or at the matrix's edge a copy that is filled up.
template <class T>
class TileSource {
 public:
  explicit TileSource(T padding) : padding_(padding) {}

  void load(const Matrix<T>& w, std::size_t row, std::size_t column) {
    const T* start = w.data + row * w.k + column;
    rows = std::min<std::size_t>(format::tile_rows, w.n - row);
    columns = std::min<std::size_t>(format::tile_k, w.k - column);
    if (rows == format::tile_rows && columns == format::tile_k) {
      data = start;
      stride = w.k;
      return;
    }
    std::fill(std::begin(copy_), std::end(copy_), padding_);
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(copy_ + r * format::tile_k, start + r * w.k, columns * sizeof(T));
    }
    data = copy_;
    stride = format::tile_k;
  }

  const T* data = nullptr;
  std::size_t stride = 0;
  std::size_t rows = 0;  // that belong to the matrix
  std::size_t columns = 0;

 private:
  T padding_;
  T copy_[format::tile_weights];
};

// Puts the exceptions of one row tile, given in order, into its groups.
class GroupWriter {
 public:
  GroupWriter(format::ExceptionGroup* groups, std::uint64_t row_tiles, std::uint64_t row_tile,
              const std::uint32_t* extra_begin)
      : first_(groups + row_tile),
        extra_(groups + row_tiles + extra_begin[row_tile]),
        slots_(std::uint64_t{format::group_entries} *
               (1 + extra_begin[row_tile + 1] - extra_begin[row_tile])) {}

  void push(format::ExceptionEntry entry) {
    const std::uint64_t group = used_ / format::group_entries;
    format::ExceptionGroup* target = group == 0 ? first_ : extra_ + (group - 1);
    target->entries[used_ % format::group_entries] = entry;
    ++used_;
  }

  void fill_up() {
    while (used_ < slots_) push({0, 0, format::unused_row, 0});
  }

 private:
  format::ExceptionGroup* first_;
  format::ExceptionGroup* extra_;
  std::uint64_t slots_;
  std::uint64_t used_ = 0;
};

void push_exceptions(const TileSource<std::uint16_t>& tile, std::size_t column, int window_base,
                     GroupWriter& groups) {
  for (std::size_t k = 0; k < tile.columns; ++k) {
    for (std::size_t row = 0; row < tile.rows; ++row) {
      const std::uint16_t bits = tile.data[row * tile.stride + k];
      if (in_window(bits, window_base)) continue;
      groups.push(
          {static_cast<std::uint32_t>(column + k), bits, static_cast<std::uint8_t>(row), 0});
    }
  }
}

// Loads the tiles of one row tile, one by one: body(source, column, index).
template <class T, class Body>
void for_tiles(const Matrix<T>& w, std::uint64_t row_tile, T padding, const Body& body) {
  TileSource<T> source(padding);
  for (std::size_t column = 0, t = 0; column < w.k; column += format::tile_k, ++t) {
    source.load(w, row_tile * format::tile_rows, column);
    body(source, column, t);
  }
}

template <class T>
Matrix<T> matrix(std::span<const T> w, const format::Header& header) {
  return {w.data(), header.n, header.k};
}

bool is_nonfinite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7F800000) == 0x7F800000;
}

PackedMatrix pack_whole(codec::PackPlan& plan) {
  const format::Header& header = plan.header();
  AlignedBuffer buffer(header.total_bytes);
  std::memset(buffer.data(), 0, header.tiles_offset);
  std::byte* const tiles = buffer.data() + header.tiles_offset;
  plan.encode(0, plan.row_tiles(), tiles);
  const std::span<const std::byte> tail = plan.tail();
  if (!tail.empty()) std::memcpy(tiles + header.tiles_bytes, tail.data(), tail.size());
  const std::span<const std::byte> all(buffer.data(), buffer.size());
  const format::Header sealed = plan.sealed_header(checksum(all.subspan(sizeof(header))));
  std::memcpy(buffer.data(), &sealed, sizeof(sealed));
  return PackedAccess::adopt(std::move(buffer));
}

}  // namespace

namespace codec {

PackPlan::PackPlan(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                   const PackOptions& options)
    : bf16_(w), threads_(options.threads) {
  check_matrix(w, n, k, options);
  const Bf16Encoding choice =
      choose_encoding(count_exponents(w, options.threads), options.max_exception_rate);
  has_nonfinite_ = choice.has_nonfinite;
  Contents contents{.encoding = Encoding::raw16,
                    .n = static_cast<std::uint64_t>(n),
                    .k = static_cast<std::uint64_t>(k)};
  header_ = make_header(contents);
  if (choice.encoding == Encoding::raw16) return;
  AlignedBuffer extra((row_tiles() + 1) * sizeof(std::uint32_t));
  const std::uint64_t group_count = count_groups(w, contents.k, choice.window_base, threads_,
                                                 reinterpret_cast<std::uint32_t*>(extra.data()));
  if (group_count > max_group_count) return;
  contents.encoding = choice.encoding;
  contents.window_base = choice.window_base;
  contents.exception_count = choice.exception_count;
  contents.group_count = group_count;
  header_ = make_header(contents);
  tail_ = AlignedBuffer(header_.total_bytes - header_.tiles_offset - header_.tiles_bytes);
  std::memset(tail_.data(), 0, tail_.size());
  std::memcpy(tail_at(header_.extra_offset), extra.data(), extra.size());
}

PackPlan::PackPlan(std::span<const float> w, std::int64_t n, std::int64_t k,
                   const PackOptions& options)
    : f32_(w), threads_(options.threads) {
  check_matrix(w, n, k, options);
  header_ = make_header({.encoding = Encoding::raw32,
                         .n = static_cast<std::uint64_t>(n),
                         .k = static_cast<std::uint64_t>(k)});
}

std::uint64_t PackPlan::row_tiles() const {
  return format::tiles_along(header_.n, format::tile_rows);
}

std::uint64_t PackPlan::row_tile_bytes() const { return header_.tiles_bytes / row_tiles(); }

std::byte* PackPlan::tail_at(std::uint64_t offset) {
  return tail_.data() + (offset - header_.tiles_offset - header_.tiles_bytes);
}

void PackPlan::encode_split12(std::uint64_t row_tile, std::byte* tiles) {
  const auto base = static_cast<int>(header_.window_base);
  const WindowBytes window(base);
  GroupWriter writer(reinterpret_cast<format::ExceptionGroup*>(tail_at(header_.groups_offset)),
                     row_tiles(), row_tile,
                     reinterpret_cast<const std::uint32_t*>(tail_at(header_.extra_offset)));
  // The window's smallest number is encoded as zero bits, which padding must be.
  const auto padding = static_cast<std::uint16_t>(base << 7);
  for_tiles(matrix(bf16_, header_), row_tile, padding,
            [&](const auto& source, std::size_t column, std::size_t t) {
              const bool any_outside = codec::encode_split12(
                  source.data, source.stride, window, tiles + t * format::split12_tile_bytes);
              if (any_outside) push_exceptions(source, column, base, writer);
            });
  writer.fill_up();
}

void PackPlan::encode_raw16(std::uint64_t row_tile, std::byte* tiles) {
  for_tiles(matrix(bf16_, header_), row_tile, std::uint16_t{0},
            [&](const auto& source, std::size_t, std::size_t t) {
              codec::encode_raw16(source.data, source.stride, tiles + t * format::raw16_tile_bytes);
            });
}

void PackPlan::encode_raw32(std::uint64_t row_tile, std::byte* tiles) {
  bool any = false;
  for_tiles(matrix(f32_, header_), row_tile, 0.0F,
            [&](const auto& source, std::size_t, std::size_t t) {
              codec::encode_raw32(source.data, source.stride, tiles + t * format::raw32_tile_bytes);
              for (std::size_t r = 0; r < format::tile_rows; ++r) {
                for (std::size_t c = 0; c < format::tile_k; ++c) {
                  any |= is_nonfinite(source.data[r * source.stride + c]);
                }
              }
            });
  if (any) has_nonfinite_.store(true, std::memory_order_relaxed);
}

void PackPlan::encode(std::uint64_t begin, std::uint64_t end, std::byte* tiles) {
  const std::uint64_t bytes = row_tile_bytes();
  for_row_tiles((end - begin) * format::tile_rows, header_.k, threads_, [&](std::uint64_t r) {
    switch (encoding()) {
      case Encoding::split12:
        return encode_split12(begin + r, tiles + r * bytes);
      case Encoding::raw16:
        return encode_raw16(begin + r, tiles + r * bytes);
      case Encoding::raw32:
        return encode_raw32(begin + r, tiles + r * bytes);
    }
  });
}

format::Header PackPlan::sealed_header(std::uint64_t payload_xxh3) const {
  return seal(header_, has_nonfinite_.load(), payload_xxh3);
}

}  // namespace codec

PackedMatrix pack(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options) {
  codec::PackPlan plan(w, n, k, options);
  return pack_whole(plan);
}

PackedMatrix pack(std::span<const float> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options) {
  codec::PackPlan plan(w, n, k, options);
  return pack_whole(plan);
}

}  // namespace slimgemm
