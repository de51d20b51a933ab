// SPDX-License-Identifier: Apache-2.0
// The host packer. BF16: count the exponents, choose window and encoding, count the exceptions of
// every row tile, then write each row tile (its tiles and its exception groups) in one pass. Every
// pass runs over row tiles or elements in parallel, and what it writes does not depend on how.
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
struct Matrix {
  const T* data;
  std::size_t n;
  std::size_t k;
  [[nodiscard]] std::size_t row_tiles() const { return format::tiles_along(n, format::tile_rows); }
  [[nodiscard]] std::size_t k_tiles() const { return format::tiles_along(k, format::tile_k); }
};

template <class T>
Matrix<T> check_matrix(std::span<const T> w, std::int64_t n, std::int64_t k,
                       const PackOptions& options) {
  check_pack_arguments(n, k, options);
  const auto size = static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(k);
  if (w.size() != size) {
    throw Error(ErrorCode::invalid_argument,
                "w has " + std::to_string(w.size()) + " elements: must be n * k = " +
                    std::to_string(n) + " * " + std::to_string(k) + " = " + std::to_string(size));
  }
  return {w.data(), static_cast<std::size_t>(n), static_cast<std::size_t>(k)};
}

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

// Writes all tiles in their raw order with encode(tile source, tile).
template <class T, class Encode>
void write_raw_tiles(const Matrix<T>& w, std::byte* tiles, std::size_t bytes, int threads,
                     const Encode& encode) {
  codec::for_row_tiles(w.n, w.k, threads, [&](std::size_t r) {
    TileSource<T> source(T{});
    for (std::size_t t = 0; t < w.k_tiles(); ++t) {
      source.load(w, r * format::tile_rows, t * format::tile_k);
      encode(source, tiles + (r * w.k_tiles() + t) * bytes);
    }
  });
}

PackedMatrix pack_raw16(const Matrix<std::uint16_t>& w, bool has_nonfinite, int threads) {
  const format::Header header = make_header({.encoding = Encoding::raw16, .n = w.n, .k = w.k});
  AlignedBuffer buffer(header.total_bytes);
  write_raw_tiles(w, buffer.data() + header.tiles_offset, format::raw16_tile_bytes, threads,
                  [](const TileSource<std::uint16_t>& source, std::byte* tile) {
                    codec::encode_raw16(source.data, source.stride, tile);
                  });
  finish(buffer, header, has_nonfinite);
  return PackedAccess::adopt(std::move(buffer));
}

PackedMatrix pack_split12(const Matrix<std::uint16_t>& w, const Bf16Encoding& choice,
                          const AlignedBuffer& extra_begin, std::uint64_t group_count,
                          int threads) {
  const format::Header header = make_header({.encoding = Encoding::split12,
                                             .n = w.n,
                                             .k = w.k,
                                             .window_base = choice.window_base,
                                             .exception_count = choice.exception_count,
                                             .group_count = group_count});
  AlignedBuffer buffer(header.total_bytes);
  const std::size_t row_tiles = w.row_tiles();
  std::memcpy(buffer.data() + header.extra_offset, extra_begin.data(), extra_begin.size());
  const auto* begins = reinterpret_cast<const std::uint32_t*>(extra_begin.data());
  auto* all_groups =
      reinterpret_cast<format::ExceptionGroup*>(buffer.data() + header.groups_offset);
  std::byte* tiles = buffer.data() + header.tiles_offset;
  const codec::WindowBytes window(choice.window_base);
  codec::for_row_tiles(w.n, w.k, threads, [&](std::size_t r) {
    // The window's smallest number is encoded as zero bits, which padding must be.
    TileSource<std::uint16_t> source(static_cast<std::uint16_t>(choice.window_base << 7));
    GroupWriter groups(all_groups, row_tiles, r, begins);
    for (std::size_t t = 0; t < w.k_tiles(); ++t) {
      const std::size_t column = t * format::tile_k;
      source.load(w, r * format::tile_rows, column);
      const bool any_outside =
          codec::encode_split12(source.data, source.stride, window,
                                tiles + (r * w.k_tiles() + t) * format::split12_tile_bytes);
      if (any_outside) push_exceptions(source, column, choice.window_base, groups);
    }
    groups.fill_up();
  });
  finish(buffer, header, choice.has_nonfinite);
  return PackedAccess::adopt(std::move(buffer));
}

bool is_nonfinite(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return (bits & 0x7F800000) == 0x7F800000;
}

}  // namespace

PackedMatrix pack(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options) {
  const Matrix<std::uint16_t> matrix = check_matrix(w, n, k, options);
  const Bf16Encoding choice =
      choose_encoding(count_exponents(w, options.threads), options.max_exception_rate);
  if (choice.encoding == Encoding::raw16) {
    return pack_raw16(matrix, choice.has_nonfinite, options.threads);
  }
  AlignedBuffer extra((matrix.row_tiles() + 1) * sizeof(std::uint32_t));
  const std::uint64_t group_count = count_groups(w, matrix.k, choice.window_base, options.threads,
                                                 reinterpret_cast<std::uint32_t*>(extra.data()));
  if (group_count > max_group_count) {
    return pack_raw16(matrix, choice.has_nonfinite, options.threads);
  }
  return pack_split12(matrix, choice, extra, group_count, options.threads);
}

PackedMatrix pack(std::span<const float> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options) {
  const Matrix<float> matrix = check_matrix(w, n, k, options);
  const format::Header header =
      make_header({.encoding = Encoding::raw32, .n = matrix.n, .k = matrix.k});
  AlignedBuffer buffer(header.total_bytes);
  std::atomic<bool> has_nonfinite{false};
  write_raw_tiles(matrix, buffer.data() + header.tiles_offset, format::raw32_tile_bytes,
                  options.threads, [&](const TileSource<float>& source, std::byte* tile) {
                    codec::encode_raw32(source.data, source.stride, tile);
                    bool any = false;
                    for (std::size_t r = 0; r < format::tile_rows; ++r) {
                      for (std::size_t k = 0; k < format::tile_k; ++k) {
                        any |= is_nonfinite(source.data[r * source.stride + k]);
                      }
                    }
                    if (any) has_nonfinite.store(true, std::memory_order_relaxed);
                  });
  finish(buffer, header, has_nonfinite.load());
  return PackedAccess::adopt(std::move(buffer));
}

}  // namespace slimgemm
