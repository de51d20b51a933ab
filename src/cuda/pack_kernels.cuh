// SPDX-License-Identifier: Apache-2.0
// The device packer's kernels. Each result depends on the weights alone, not on the grid.
//
//   w (row-major) --count_exponents--> histogram          host: window and encoding
//                 --count_extra_groups--> extra_begin     host: running sums, section sizes
//                 --write_split12_tiles / write_raw16_tiles--> tiles
//                 --write_groups--> exception groups
//
// Tiles: one warp a tile, a lane gathers its own 32 weights and stores 16 bytes a plane. Groups:
// one CTA a row tile walks k; a prefix sum over the (k, row) order of 64 columns gives every
// exception its slot. For a device image (slimgemm/device_image.hpp) the same kernels write tiles
// and groups where that has them, and finish_heads the rest of the heads.
#pragma once

#include "codec/window.hpp"
#include "format/device_image.hpp"
#include "format/layout.hpp"

#include <cuda_runtime.h>

#include <cstdint>

namespace slimgemm::cuda::pack {

inline constexpr int threads_per_cta = 256;
inline constexpr int warps_per_cta = threads_per_cta / format::lanes;

struct Matrix {
  const std::uint16_t* w;
  std::uint64_t n;
  std::uint64_t k;
  std::uint64_t row_tiles;
  std::uint64_t k_tiles;
};

// histogram: 256 counts, zeroed before.
inline __global__ void __launch_bounds__(threads_per_cta)
    count_exponents(Matrix m, unsigned long long* histogram) {
  __shared__ unsigned int counts[warps_per_cta][256];
  for (unsigned int i = threadIdx.x; i < warps_per_cta * 256; i += threads_per_cta) {
    counts[i / 256][i % 256] = 0;
  }
  __syncthreads();
  const std::uint64_t size = m.n * m.k;
  const std::uint64_t step = std::uint64_t{gridDim.x} * threads_per_cta;
  const unsigned int warp = threadIdx.x / format::lanes;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * threads_per_cta + threadIdx.x; i < size;
       i += step) {
    atomicAdd(&counts[warp][m.w[i] >> 7 & 0xFF], 1U);
  }
  __syncthreads();
  static_assert(threads_per_cta == 256, "a thread an exponent");
  unsigned long long sum = 0;
  for (int other = 0; other < warps_per_cta; ++other) sum += counts[other][threadIdx.x];
  if (sum != 0) atomicAdd(histogram + threadIdx.x, sum);
}

// extra_begin[r + 1] = groups that row tile r needs beyond its first.
inline __global__ void __launch_bounds__(threads_per_cta)
    count_extra_groups(Matrix m, int window_base, std::uint32_t* extra_begin) {
  __shared__ unsigned long long total;
  for (std::uint64_t r = blockIdx.x; r < m.row_tiles; r += gridDim.x) {
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    const std::uint64_t row_end = min(m.n, (r + 1) * format::tile_rows);
    const std::uint64_t end = row_end * m.k;
    unsigned long long count = 0;
    for (std::uint64_t i = r * format::tile_rows * m.k + threadIdx.x; i < end;
         i += threads_per_cta) {
      count += in_window(m.w[i], window_base) ? 0 : 1;
    }
    if (count != 0) atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0) extra_begin[r + 1] = static_cast<std::uint32_t>(extra_groups(total));
    __syncthreads();
  }
}

// The eight weights of one lane and fragment, in the order of format::fragment_slot; `inside` has
// bit i set where weight i belongs to the matrix.
struct LaneWeights {
  std::uint16_t bits[8];
  unsigned int inside;
};

inline __device__ LaneWeights gather(const Matrix& m, std::uint64_t tile, int fragment) {
  const int lane = static_cast<int>(threadIdx.x % format::lanes);
  const std::uint64_t row0 = tile / m.k_tiles * format::tile_rows + lane / 4;
  const std::uint64_t k0 = tile % m.k_tiles * format::tile_k + fragment * 16 + 2 * (lane % 4);
  LaneWeights out{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t row = row0 + (i / 2 % 2) * 8;
    const std::uint64_t k = k0 + (i / 4) * 8 + i % 2;
    if (row < m.n && k < m.k) {
      out.bits[i] = m.w[row * m.k + k];
      out.inside |= 1U << i;
    }
  }
  return out;
}

inline __device__ std::uint64_t first_tile() {
  return std::uint64_t{blockIdx.x} * warps_per_cta + threadIdx.x / format::lanes;
}
inline __device__ std::uint64_t tile_step() { return std::uint64_t{gridDim.x} * warps_per_cta; }

// tiles: row_tiles times k_tiles tiles of 1536 bytes, row tiles row_tile_bytes apart.
inline __global__ void __launch_bounds__(threads_per_cta)
    write_split12_tiles(Matrix m, int window_base, unsigned char* tiles,
                        std::uint64_t row_tile_bytes) {
  const int lane = static_cast<int>(threadIdx.x % format::lanes);
  for (std::uint64_t tile = first_tile(); tile < m.row_tiles * m.k_tiles; tile += tile_step()) {
    std::uint32_t low[8] = {};      // two words a fragment
    std::uint32_t nibbles[4] = {};  // one word a fragment
#pragma unroll
    for (int f = 0; f < format::fragments_per_tile; ++f) {
      const LaneWeights weights = gather(m, tile, f);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const std::uint32_t bits = weights.bits[i];
        const bool outside_matrix = (weights.inside >> i & 1) == 0;
        if (outside_matrix || !in_window(weights.bits[i], window_base)) continue;
        low[2 * f + i / 4] |= (bits & 0xFF) << (8 * (i % 4));
        const std::uint32_t code = (bits >> 8 & 0x7F) - static_cast<std::uint32_t>(window_base / 2);
        nibbles[f] |= format::nibble_bits(i, bits >> 15, code);
      }
    }
    unsigned char* const at =
        tiles + tile / m.k_tiles * row_tile_bytes + tile % m.k_tiles * format::split12_tile_bytes;
    uint4* out = reinterpret_cast<uint4*>(at) + lane;
    out[0] = make_uint4(low[0], low[1], low[2], low[3]);
    out[format::lanes] = make_uint4(low[4], low[5], low[6], low[7]);
    out[2 * format::lanes] = make_uint4(nibbles[0], nibbles[1], nibbles[2], nibbles[3]);
  }
}

// tiles: row_tiles * k_tiles tiles of 2048 bytes.
inline __global__ void __launch_bounds__(threads_per_cta)
    write_raw16_tiles(Matrix m, uint4* tiles) {
  const int lane = static_cast<int>(threadIdx.x % format::lanes);
  for (std::uint64_t tile = first_tile(); tile < m.row_tiles * m.k_tiles; tile += tile_step()) {
    uint4* out = tiles + tile * (format::raw16_planes * format::lanes) + lane;
#pragma unroll
    for (int f = 0; f < format::fragments_per_tile; ++f) {
      const LaneWeights weights = gather(m, tile, f);
      std::uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i] = weights.bits[2 * i] | std::uint32_t{weights.bits[2 * i + 1]} << 16;
      }
      out[f * format::lanes] = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

// An ExceptionEntry as the 8 bytes it is.
inline __device__ unsigned long long entry_bits(std::uint64_t k, std::uint32_t bits,
                                                std::uint32_t row) {
  return k | static_cast<unsigned long long>(bits) << 32 |
         static_cast<unsigned long long>(row) << 48;
}

// Where the groups of a row tile lie, as 8-byte entries: in a packed matrix, given the running
// sums.
struct PackedGroups {
  unsigned long long* groups;
  const std::uint32_t* extra_begin;
  std::uint64_t row_tiles;

  // Entries that the row tile has room for.
  [[nodiscard]] __device__ std::uint64_t slots(std::uint64_t r) const {
    return std::uint64_t{format::group_entries} * (1 + extra_begin[r + 1] - extra_begin[r]);
  }
  [[nodiscard]] __device__ unsigned long long* slot(std::uint64_t r, std::uint64_t p) const {
    const std::uint64_t group = p / format::group_entries;
    const std::uint64_t at = group == 0 ? r : row_tiles + extra_begin[r] + group - 1;
    return groups + at * format::group_entries + p % format::group_entries;
  }
};

// The same in a device image, given the running sums of the groups after the heads.
struct ImageGroups {
  unsigned char* heads;  // the first
  std::uint64_t row_tile_bytes;
  unsigned long long* more;
  const std::uint32_t* more_begin;

  [[nodiscard]] __device__ std::uint64_t slots(std::uint64_t r) const {
    return std::uint64_t{format::group_entries} *
           (format::head_groups + more_begin[r + 1] - more_begin[r]);
  }
  [[nodiscard]] __device__ unsigned long long* slot(std::uint64_t r, std::uint64_t p) const {
    constexpr std::uint64_t head_entries = format::head_groups * format::group_entries;
    if (p >= head_entries) {
      return more + std::uint64_t{more_begin[r]} * format::group_entries + p - head_entries;
    }
    return reinterpret_cast<unsigned long long*>(heads + r * row_tile_bytes) + p;
  }
};

// Sum of `count` over the threads before this one; `total` becomes that of the whole CTA. All
// threads of the CTA call it.
inline __device__ unsigned int exclusive_sum(unsigned int count, unsigned int& total) {
  __shared__ unsigned int warp_sums[warps_per_cta];
  const unsigned int lane = threadIdx.x % format::lanes;
  const unsigned int warp = threadIdx.x / format::lanes;
  unsigned int sum = count;
  for (unsigned int step = 1; step < format::lanes; step *= 2) {
    const unsigned int other = __shfl_up_sync(0xFFFFFFFFU, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == format::lanes - 1) warp_sums[warp] = sum;
  __syncthreads();
  unsigned int before = 0;
  total = 0;
  for (unsigned int other = 0; other < warps_per_cta; ++other) {
    if (other < warp) before += warp_sums[other];
    total += warp_sums[other];
  }
  __syncthreads();
  return before + sum - count;
}

// groups: a PackedGroups or an ImageGroups.
template <class Groups>
__global__ void __launch_bounds__(threads_per_cta)
    write_groups(Matrix m, int window_base, Groups groups) {
  constexpr int per_thread = format::tile_weights / threads_per_cta;  // one below the other
  static_assert(format::tile_rows % per_thread == 0);
  const unsigned int first_key = threadIdx.x * per_thread;  // of (k, row) order inside the tile
  for (std::uint64_t r = blockIdx.x; r < m.row_tiles; r += gridDim.x) {
    std::uint64_t used = 0;
    for (std::uint64_t t = 0; t < m.k_tiles; ++t) {
      const std::uint64_t k = t * format::tile_k + first_key / format::tile_rows;
      const unsigned int row0 = first_key % format::tile_rows;
      std::uint16_t bits[per_thread] = {};
      unsigned int outside = 0;
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        const std::uint64_t row = r * format::tile_rows + row0 + i;
        if (row < m.n && k < m.k) {
          bits[i] = m.w[row * m.k + k];
          if (!in_window(bits[i], window_base)) outside |= 1U << i;
        }
      }
      if (__syncthreads_or(outside != 0 ? 1 : 0) == 0) continue;
      unsigned int total = 0;
      std::uint64_t slot = used + exclusive_sum(__popc(outside), total);
#pragma unroll
      for (int i = 0; i < per_thread; ++i) {
        if ((outside >> i & 1) == 0) continue;
        *groups.slot(r, slot) = entry_bits(k, bits[i], row0 + i);
        ++slot;
      }
      used += total;
    }
    for (std::uint64_t p = used + threadIdx.x; p < groups.slots(r); p += threads_per_cta) {
      *groups.slot(r, p) = entry_bits(0, 0, format::unused_row);
    }
  }
}

// What the heads say of the groups after them. Runs after write_groups.
inline __global__ void __launch_bounds__(threads_per_cta)
    finish_heads(ImageGroups groups, std::uint64_t row_tiles) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * threads_per_cta;
  for (std::uint64_t r = std::uint64_t{blockIdx.x} * threads_per_cta + threadIdx.x; r < row_tiles;
       r += step) {
    auto* const head =
        reinterpret_cast<format::ExceptionHead*>(groups.heads + r * groups.row_tile_bytes);
    const std::uint32_t begin = groups.more_begin[r];
    const std::uint32_t end = groups.more_begin[r + 1];
    head->groups[0].entries[0].zero = end > begin ? 1 : 0;
    head->more_begin = begin;
    head->more_end = end;
  }
}

}  // namespace slimgemm::cuda::pack
