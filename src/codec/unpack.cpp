// SPDX-License-Identifier: Apache-2.0
#include "codec/unpack_rows.hpp"

#include "codec/packed_access.hpp"
#include "codec/row_tiles.hpp"
#include "codec/sections.hpp"
#include "codec/tile_codec.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace slimgemm {
namespace {

template <class T>
void check_output(const PackedMatrix& packed, std::span<T> out) {
  constexpr DType given = sizeof(T) == 2 ? DType::bf16 : DType::f32;
  if (packed.dtype() != given) {
    throw Error(ErrorCode::invalid_argument, std::string("out is ") + name(given) +
                                                 ": the packed matrix is " + name(packed.dtype()));
  }
  const auto size = static_cast<std::uint64_t>(packed.n()) * static_cast<std::uint64_t>(packed.k());
  if (out.size() != size) {
    throw Error(ErrorCode::invalid_argument,
                "out has " + std::to_string(out.size()) +
                    " elements: must be n * k = " + std::to_string(packed.n()) + " * " +
                    std::to_string(packed.k()) + " = " + std::to_string(size));
  }
}

// Writes the rows of one row tile with decode(tile, rows, stride).
template <class T, class Decode>
void unpack_row_tile(const PackedMatrix& packed, std::size_t row_tile, T* out,
                     const Decode& decode) {
  const auto n = static_cast<std::size_t>(packed.n());
  const auto k = static_cast<std::size_t>(packed.k());
  const std::size_t k_tiles = PackedAccess::k_tiles(packed);
  const auto bytes = static_cast<std::size_t>(format::tile_bytes(packed.encoding()));
  const std::size_t rows =
      std::min<std::size_t>(format::tile_rows, n - row_tile * format::tile_rows);
  const std::byte* tile = PackedAccess::tiles(packed).data() + row_tile * k_tiles * bytes;
  for (std::size_t column = 0; column < k; column += format::tile_k, tile += bytes) {
    T* target = out + column;
    const std::size_t columns = std::min<std::size_t>(format::tile_k, k - column);
    if (rows == format::tile_rows && columns == format::tile_k) {
      decode(tile, target, k);
      continue;
    }
    T whole[format::tile_weights];
    decode(tile, whole, format::tile_k);
    for (std::size_t r = 0; r < rows; ++r) {
      std::memcpy(target + r * k, whole + r * format::tile_k, columns * sizeof(T));
    }
  }
}

void restore_exceptions(const format::ExceptionGroup& group, std::size_t k, std::uint16_t* out) {
  for (const format::ExceptionEntry& entry : group.entries) {
    if (entry.row == format::unused_row) return;
    out[entry.row * k + entry.k] = entry.bits;
  }
}

// body(row_tile, its first row in `out`).
template <class T, class Body>
void for_row_tiles(const PackedMatrix& packed, std::uint64_t begin, std::span<T> out, int threads,
                   const Body& body) {
  const auto k = static_cast<std::uint64_t>(packed.k());
  codec::for_row_tiles(out.size() / k, k, threads, [&](std::uint64_t r) {
    body(begin + r, out.data() + r * format::tile_rows * k);
  });
}

void unpack_split12(const PackedMatrix& packed, std::uint64_t begin, std::span<std::uint16_t> out,
                    int threads) {
  const codec::WindowBytes window(packed.window_base());
  const auto groups = PackedAccess::groups(packed);
  const auto extra_begin = PackedAccess::extra_begin(packed);
  const std::size_t row_tiles = PackedAccess::row_tiles(packed);
  const auto k = static_cast<std::size_t>(packed.k());
  for_row_tiles(packed, begin, out, threads, [&](std::uint64_t r, std::uint16_t* rows) {
    unpack_row_tile(packed, r, rows,
                    [&](const std::byte* tile, std::uint16_t* target, std::size_t stride) {
                      codec::decode_split12(tile, window, target, stride);
                    });
    restore_exceptions(groups[r], k, rows);
    for (std::uint32_t g = extra_begin[r]; g < extra_begin[r + 1]; ++g) {
      restore_exceptions(groups[row_tiles + g], k, rows);
    }
  });
}

}  // namespace

namespace codec {

void unpack_rows(const PackedMatrix& packed, std::uint64_t row_tile, std::span<std::uint16_t> out,
                 int threads) {
  if (packed.encoding() == Encoding::split12) {
    unpack_split12(packed, row_tile, out, threads);
    return;
  }
  slimgemm::for_row_tiles(packed, row_tile, out, threads,
                          [&](std::uint64_t r, std::uint16_t* rows) {
                            unpack_row_tile(packed, r, rows, decode_raw16);
                          });
}

void unpack_rows(const PackedMatrix& packed, std::uint64_t row_tile, std::span<float> out,
                 int threads) {
  slimgemm::for_row_tiles(packed, row_tile, out, threads, [&](std::uint64_t r, float* rows) {
    unpack_row_tile(packed, r, rows, decode_raw32);
  });
}

}  // namespace codec

void unpack(const PackedMatrix& packed, std::span<std::uint16_t> out, int threads) {
  check_output(packed, out);
  codec::unpack_rows(packed, 0, out, threads);
}

void unpack(const PackedMatrix& packed, std::span<float> out, int threads) {
  check_output(packed, out);
  codec::unpack_rows(packed, 0, out, threads);
}

}  // namespace slimgemm
