// SPDX-License-Identifier: Apache-2.0
// The kernels of the CPU backend, written once over the vectors of an instruction set. A file
// kernels_<set>.cpp includes this inside its own namespace, under its own target attributes, after
// cpu/gemm_includes.hpp, and instantiates Gemm<Ops, Encoding> with
//
//   struct Ops {
//     using Vector;                        // vector_bytes of a chunk of x or of decoded weights
//     using Sum;                           // vector_bytes of FP32 sums
//     static constexpr int vector_bytes;   // 16, 32 or 64
//     static constexpr int k16_steps;      // chunks of 16 columns: 2 FP32, 1 pairs of BF16
//     static constexpr int max_sums;       // Sums that fit in registers beside the operands
//     static constexpr int max_tokens;     // tokens of a block
//     static constexpr int direct_tokens;  // 1 to 3
//     static constexpr bool drops_subnormal_weights;
//     static Sum zero();
//     static Sum load_sum(const float*);           static void store_sum(Sum, float*);
//     static Vector load(const std::uint8_t*);     static void store(Vector, std::uint8_t*);
//     static Vector load_register(const std::uint8_t*);  // for several uses: loaded once
//     static Sum multiply_add(Vector weights, Vector x, Sum sum);
//     // Part `part` of the chunks of row pair (r, r + 8) of a tile, in the order of the steps.
//     template <Encoding E> static void decode(const std::uint8_t* tile, int r, int part,
//                                              int window_base, Vector (&)[4 * k16_steps]);
//     // The chunks of 16 values of x, `step_bytes` apart.
//     template <Encoding E> static void arrange(const std::uint16_t* x, std::uint8_t* to,
//                                               std::size_t step_bytes);
//     // The two rows' totals of a Sum.
//     template <Encoding E> static void reduce(Sum sum, float& row, float& row_plus_8);
//   };
//
// Which weight a lane of a chunk holds, for k16 = 8 * kh + 2 * q + k0 and row = r + 8 * rh:
//
//   split12, raw16, FP32 steps: chunk k0, lane 4 * q + 2 * kh + rh
//   split12, BF16 pairs:        the lane holds k0 = 0 in its low, k0 = 1 in its high half
//   raw32:                      chunk kh, lane 4 * q + 2 * rh + k0

#include "cpu/block-inl.hpp"

template <class Ops, Encoding E>
class Gemm {
 public:
  static void arrange_x(const Batch& batch, std::int64_t begin, std::int64_t end);
  static void multiply(const Weights& weights, const Batch& batch, std::int64_t tile_begin,
                       std::int64_t tile_end);
  static constexpr KernelTable table(const char* target) {
    return {target, Ops::max_tokens, Ops::direct_tokens, Ops::k16_steps, &arrange_x, &multiply};
  }

 private:
  using Vector = typename Ops::Vector;
  using Sum = typename Ops::Sum;
  static constexpr int parts = chunk_bytes / Ops::vector_bytes;
  static constexpr int lanes = Ops::vector_bytes / 4;
  static constexpr int tile_steps = format::fragments_per_tile * Ops::k16_steps;
  static constexpr int panel_tiles = panel_steps / tile_steps;
  static constexpr int tile_bytes = format::tile_bytes(E);
  static constexpr int step_bytes = row_pairs * chunk_bytes;  // of decoded weights
  static constexpr int panel_bytes = panel_steps * step_bytes;
  // How far ahead of the multiplication the direct kernel asks for weights.
  static constexpr int prefetch_bytes = 4096;

  static const std::uint8_t* tile_at(const Weights& weights, std::int64_t row_tile) {
    return weights.tiles + row_tile * weights.k_tiles * tile_bytes;
  }
  static int panel_tile_count(const Weights& weights, std::int64_t panel) {
    return static_cast<int>(
        std::min<std::int64_t>(panel_tiles, weights.k_tiles - panel * panel_tiles));
  }

  static void decode_tile(const std::uint8_t* tile, int window_base, std::uint8_t* to);
  static void patch(ExceptionCursor& exceptions, std::int64_t k_begin, std::int64_t k_end,
                    std::uint8_t* decoded);
  template <int T>
  static void direct(const Weights& weights, const Batch& batch, std::int64_t row_tile);
  template <int T>
  static void multiply_tile(const Weights& weights, const std::uint8_t* tile, const std::uint8_t* x,
                            Sum (&sums)[row_pairs][T]);
  template <int T>
  static void multiply_patched_tile(const std::uint8_t* decoded, const std::uint8_t* x,
                                    Sum (&sums)[row_pairs][T]);
  static void panels(const Weights& weights, const Batch& batch, std::int64_t row_tile, int tiles);
  static void finish(const Weights& weights, const Batch& batch, std::int64_t row_tile,
                     const float* sums);
  static void add_subnormals(const Weights& weights, const Batch& batch, std::int64_t row_tile,
                             std::int64_t token, float (&row)[format::tile_rows]);
};

// Panel by panel, block by block, step by step, a chunk a token.
template <class Ops, Encoding E>
void Gemm<Ops, E>::arrange_x(const Batch& batch, std::int64_t begin, std::int64_t end) {
  constexpr int panel_k = panel_tiles * format::tile_k;
  const std::int64_t k_tiles =
      static_cast<std::int64_t>(format::tiles_along(batch.k, format::tile_k));
  for (std::int64_t item = begin; item < end; ++item) {
    const std::int64_t panel = item / batch.blocks;
    const std::int64_t first = batch.block_begin(item % batch.blocks);
    const std::int64_t tokens = batch.block_begin(item % batch.blocks + 1) - first;
    const std::int64_t tiles = std::min<std::int64_t>(panel_tiles, k_tiles - panel * panel_tiles);
    std::uint8_t* const block =
        batch.arranged +
        (panel * panel_steps * batch.tokens + first * tiles * tile_steps) * chunk_bytes;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::uint16_t* const x = batch.x + (first + t) * batch.x_row_stride;
      for (std::int64_t k16 = 0; k16 < tiles * format::fragments_per_tile; ++k16) {
        const std::int64_t k = panel * panel_k + k16 * 16;
        std::uint8_t* const to = block + (k16 * Ops::k16_steps * tokens + t) * chunk_bytes;
        const auto step = static_cast<std::size_t>(tokens) * chunk_bytes;
        if (k + 16 <= batch.k) {
          Ops::template arrange<E>(x + k, to, step);
        } else {
          std::uint16_t padded[16] = {};
          if (k < batch.k) {
            std::memcpy(padded, x + k, static_cast<std::size_t>(batch.k - k) * sizeof(*x));
          }
          Ops::template arrange<E>(padded, to, step);
        }
      }
    }
  }
}

template <class Ops, Encoding E>
void Gemm<Ops, E>::decode_tile(const std::uint8_t* tile, int window_base, std::uint8_t* to) {
  for (int r = 0; r < row_pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int part = 0; part < parts; ++part) {
      Vector decoded[tile_steps];
      Ops::template decode<E>(tile, r, part, window_base, decoded);
      std::uint8_t* const first = to + r * chunk_bytes + part * Ops::vector_bytes;
      SLIMGEMM_UNROLL
      for (int s = 0; s < tile_steps; ++s) Ops::store(decoded[s], first + s * step_bytes);
    }
  }
}

// Puts the true weights of columns [k_begin, k_end) over their stand-ins. `decoded` starts at
// column k_begin.
template <class Ops, Encoding E>
void Gemm<Ops, E>::patch(ExceptionCursor& exceptions, std::int64_t k_begin, std::int64_t k_end,
                         std::uint8_t* decoded) {
  for (; exceptions.k() < k_end; exceptions.next()) {
    const format::ExceptionEntry& e = exceptions.entry();
    const int k = static_cast<int>(exceptions.k() - k_begin);
    const int lane = 4 * (k % 8 / 2) + 2 * (k % 16 / 8) + e.row / 8;
    const int step = k / 16 * Ops::k16_steps + (Ops::k16_steps == 2 ? k % 2 : 0);
    std::uint8_t* const at = decoded + step * step_bytes + e.row % 8 * chunk_bytes + 4 * lane;
    if constexpr (Ops::k16_steps == 2) {
      const std::uint32_t fp32 = std::uint32_t{e.bits} << 16;
      std::memcpy(at, &fp32, sizeof(fp32));
    } else {
      std::memcpy(at + 2 * (k % 2), &e.bits, sizeof(e.bits));
    }
  }
}

// A few tokens: every weight goes from its packed bytes through registers into the sums. Only a
// tile with exceptions takes the way over memory.
template <class Ops, Encoding E>
template <int T>
void Gemm<Ops, E>::direct(const Weights& weights, const Batch& batch, std::int64_t row_tile) {
  alignas(chunk_bytes) std::uint8_t decoded[tile_steps * step_bytes];
  Sum sums[row_pairs][T];
  SLIMGEMM_UNROLL
  for (int r = 0; r < row_pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int t = 0; t < T; ++t) sums[r][t] = Ops::zero();
  }
  ExceptionCursor exceptions(weights, row_tile);
  const std::uint8_t* tile = tile_at(weights, row_tile);
  const std::uint8_t* x = batch.arranged;
  for (std::int64_t k = 0; k < weights.k_tiles * format::tile_k; k += format::tile_k) {
    if (exceptions.k() >= k + format::tile_k) {
      multiply_tile<T>(weights, tile, x, sums);
    } else {
      decode_tile(tile, weights.window_base, decoded);
      patch(exceptions, k, k + format::tile_k, decoded);
      multiply_patched_tile<T>(decoded, x, sums);
    }
    tile += tile_bytes;
    x += tile_steps * T * chunk_bytes;
  }
  alignas(chunk_bytes) float spilled[row_pairs * T * lanes];
  SLIMGEMM_UNROLL
  for (int r = 0; r < row_pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int t = 0; t < T; ++t) Ops::store_sum(sums[r][t], spilled + (r * T + t) * lanes);
  }
  finish(weights, batch, row_tile, spilled);
}

template <class Ops, Encoding E>
template <int T>
inline void Gemm<Ops, E>::multiply_tile(const Weights& weights, const std::uint8_t* tile,
                                        const std::uint8_t* x, Sum (&sums)[row_pairs][T]) {
  constexpr int lines_per_pair = tile_bytes / line_bytes / row_pairs;
  const std::uint8_t* const ahead = tile + prefetch_bytes;
  SLIMGEMM_UNROLL
  for (int r = 0; r < row_pairs; ++r) {
    SLIMGEMM_UNROLL
    for (int i = 0; i < lines_per_pair; ++i) {
      prefetch_near(ahead + (r * lines_per_pair + i) * line_bytes);
    }
    SLIMGEMM_UNROLL
    for (int part = 0; part < parts; ++part) {
      Vector decoded[tile_steps];
      Ops::template decode<E>(tile, r, part, weights.window_base, decoded);
      SLIMGEMM_UNROLL
      for (int s = 0; s < tile_steps; ++s) {
        SLIMGEMM_UNROLL
        for (int t = 0; t < T; ++t) {
          const Vector xs = Ops::load(x + (s * T + t) * chunk_bytes + part * Ops::vector_bytes);
          sums[r][t] = Ops::multiply_add(decoded[s], xs, sums[r][t]);
        }
      }
    }
  }
}

template <class Ops, Encoding E>
template <int T>
inline void Gemm<Ops, E>::multiply_patched_tile(const std::uint8_t* decoded, const std::uint8_t* x,
                                                Sum (&sums)[row_pairs][T]) {
  SLIMGEMM_UNROLL
  for (int r = 0; r < row_pairs; ++r) {
    for (int part = 0; part < parts; ++part) {
      const int offset = part * Ops::vector_bytes;
      for (int s = 0; s < tile_steps; ++s) {
        const Vector w = Ops::load(decoded + s * step_bytes + r * chunk_bytes + offset);
        SLIMGEMM_UNROLL
        for (int t = 0; t < T; ++t) {
          const Vector xs = Ops::load(x + (s * T + t) * chunk_bytes + offset);
          sums[r][t] = Ops::multiply_add(w, xs, sums[r][t]);
        }
      }
    }
  }
}

// Many tokens: a panel of weights is decoded once into memory that stays in the nearest caches,
// then multiplied with one block of tokens after the other.
template <class Ops, Encoding E>
void Gemm<Ops, E>::panels(const Weights& weights, const Batch& batch, std::int64_t row_tile,
                          int tiles) {
  static constexpr auto functions = Blocks<Ops>::functions();
  const std::int64_t pair_sums = batch.tokens * lanes;  // floats of one row pair
  const std::int64_t tile_sums = row_pairs * pair_sums;
  const std::size_t sums_bytes = static_cast<std::size_t>(tiles * tile_sums) * sizeof(float);
  std::uint8_t* const decoded =
      thread_scratch(ScratchUse::kernel, std::size_t{group_tiles} * panel_bytes + sums_bytes);
  float* const sums = reinterpret_cast<float*>(decoded + group_tiles * panel_bytes);
  ExceptionCursor exceptions[group_tiles];
  for (int i = 0; i < tiles; ++i) exceptions[i] = ExceptionCursor(weights, row_tile + i);

  for (std::int64_t first = 0; first < weights.k_tiles; first += panel_tiles) {
    const int count = panel_tile_count(weights, first / panel_tiles);
    const int steps = count * tile_steps;
    for (int i = 0; i < tiles; ++i) {
      std::uint8_t* const panel = decoded + i * panel_bytes;
      const std::uint8_t* const packed = tile_at(weights, row_tile + i) + first * tile_bytes;
      for (int j = 0; j < count; ++j) {
        decode_tile(packed + j * tile_bytes, weights.window_base,
                    panel + j * tile_steps * step_bytes);
      }
      patch(exceptions[i], first * format::tile_k, (first + count) * format::tile_k, panel);
    }
    const std::uint8_t* const x = batch.arranged + first * tile_steps * batch.tokens * chunk_bytes;
    for (std::int64_t b = 0; b < batch.blocks; ++b) {
      const std::int64_t t = batch.block_begin(b);
      const auto function = functions[static_cast<std::size_t>(batch.block_begin(b + 1) - t - 1)];
      for (int i = 0; i < tiles; ++i) {
        const std::uint8_t* const next =
            tile_at(weights, row_tile + i) + (first + count) * tile_bytes;
        function({decoded + i * panel_bytes, x + t * steps * chunk_bytes,
                  sums + i * tile_sums + t * lanes, pair_sums, steps, first == 0,
                  b == 0 ? count * tile_bytes / line_bytes : 0, next});
      }
    }
  }
  for (int i = 0; i < tiles; ++i) {
    finish(weights, batch, row_tile + i, sums + i * tile_sums);
  }
}

// Adds up the lanes and writes a row tile's share of `out`. sums: [row pair][token].
template <class Ops, Encoding E>
void Gemm<Ops, E>::finish(const Weights& weights, const Batch& batch, std::int64_t row_tile,
                          const float* sums) {
  const std::int64_t first_row = row_tile * format::tile_rows;
  const auto rows =
      static_cast<int>(std::min<std::int64_t>(format::tile_rows, batch.row_end - first_row));
  for (std::int64_t t = 0; t < batch.tokens; ++t) {
    float row[format::tile_rows];
    for (int r = 0; r < row_pairs; ++r) {
      Ops::template reduce<E>(Ops::load_sum(sums + (r * batch.tokens + t) * lanes), row[r],
                              row[r + row_pairs]);
    }
    if (Ops::drops_subnormal_weights && weights.has_subnormals) {
      add_subnormals(weights, batch, row_tile, t, row);
    }
    const std::int64_t to = t * batch.out_row_stride + first_row - batch.row_begin;
    if constexpr (E == Encoding::raw32) {
      float* const out = static_cast<float*>(batch.out) + to;
      std::copy_n(row, rows, out);
    } else {
      std::uint16_t* const out = static_cast<std::uint16_t*>(batch.out) + to;
      std::uint16_t rounded[format::tile_rows];
      for (int i = 0; i < format::tile_rows; ++i) rounded[i] = float_to_bf16(row[i]);
      std::copy_n(rounded, rows, out);
    }
  }
}

// What the multiplication took for zero: the subnormal weights' products, in FP32.
template <class Ops, Encoding E>
void Gemm<Ops, E>::add_subnormals(const Weights& weights, const Batch& batch, std::int64_t row_tile,
                                  std::int64_t token, float (&row)[format::tile_rows]) {
  const std::uint16_t* const x = batch.x + token * batch.x_row_stride;
  for (ExceptionCursor c(weights, row_tile); c.k() != ExceptionCursor::end_k; c.next()) {
    const format::ExceptionEntry& e = c.entry();
    if (bf16_is_subnormal(e.bits)) row[e.row] += bf16_to_float(e.bits) * bf16_to_float(x[c.k()]);
  }
}

template <class Ops, Encoding E>
void Gemm<Ops, E>::multiply(const Weights& weights, const Batch& batch, std::int64_t tile_begin,
                            std::int64_t tile_end) {
  if (batch.panels_only || batch.tokens > Ops::direct_tokens) {
    const int group = batch.blocks == 1 ? 1 : group_tiles;
    for (std::int64_t tile = tile_begin; tile < tile_end; tile += group) {
      panels(weights, batch, tile,
             static_cast<int>(std::min<std::int64_t>(group, tile_end - tile)));
    }
    return;
  }
  for (std::int64_t tile = tile_begin; tile < tile_end; ++tile) {
    switch (batch.tokens) {
      case 1:
        direct<1>(weights, batch, tile);
        break;
      case 2:
        if constexpr (Ops::direct_tokens >= 2) direct<2>(weights, batch, tile);
        break;
      default:
        if constexpr (Ops::direct_tokens >= 3) direct<3>(weights, batch, tile);
        break;
    }
  }
}

#undef SLIMGEMM_UNROLL
