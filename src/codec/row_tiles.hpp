// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "format/layout.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstdint>

namespace slimgemm::codec {

/// Calls body(begin, end) for ranges of the row tiles of an n x k matrix, on up to `threads`
/// threads. Matrices of few tiles are not worth a second thread.
template <class Body>
void for_row_tile_ranges(std::uint64_t n, std::uint64_t k, int threads, const Body& body) {
  constexpr std::uint64_t grain_tiles = 128;  // 128 to 512 KB packed
  const std::uint64_t row_tiles = format::tiles_along(n, format::tile_rows);
  const std::uint64_t k_tiles = format::tiles_along(k, format::tile_k);
  parallel_for(static_cast<std::int64_t>(row_tiles),
               static_cast<std::int64_t>(std::max<std::uint64_t>(1, grain_tiles / k_tiles)),
               threads, [&](std::int64_t begin, std::int64_t end) {
                 body(static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end));
               });
}

/// The same one by one: body(row_tile).
template <class Body>
void for_row_tiles(std::uint64_t n, std::uint64_t k, int threads, const Body& body) {
  for_row_tile_ranges(n, k, threads, [&](std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t r = begin; r < end; ++r) body(r);
  });
}

}  // namespace slimgemm::codec
