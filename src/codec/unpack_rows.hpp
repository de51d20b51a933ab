// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/packed.hpp>

#include <cstdint>
#include <span>

namespace slimgemm::codec {

/// Writes the rows of some row tiles, from `row_tile` on: as many rows as `out` holds, which are
/// whole row tiles, or end with the matrix. The dtype must be that of `out`.
void unpack_rows(const PackedMatrix& packed, std::uint64_t row_tile, std::span<std::uint16_t> out,
                 int threads = 0);
void unpack_rows(const PackedMatrix& packed, std::uint64_t row_tile, std::span<float> out,
                 int threads = 0);

}  // namespace slimgemm::codec
