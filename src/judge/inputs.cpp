// SPDX-License-Identifier: Apache-2.0
#include "judge/inputs.hpp"

#include "judge/random.hpp"
#include "support/bf16.hpp"
#include "support/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace slimgemm::judge {
namespace {

// Names of the random streams, so that no two kinds of numbers share one.
enum StreamKind : std::uint64_t { stream_weights = 1, stream_x = 2, stream_probe = 3 };

constexpr std::int64_t block_elements = 1 << 14;  // of one stream

// Fills `out` with normal numbers: block b from the stream (seed, kind, id, index, b).
template <typename Element, typename Convert>
void fill_normal(std::vector<Element>& out, std::array<std::uint64_t, 4> name, int threads,
                 Convert convert) {
  const auto count = static_cast<std::int64_t>(out.size());
  const std::int64_t blocks = (count + block_elements - 1) / block_elements;
  parallel_for(blocks, 1, threads, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      RandomStream random{name[0], name[1], name[2], name[3], static_cast<std::uint64_t>(block)};
      const std::int64_t end = std::min(count, (block + 1) * block_elements);
      for (std::int64_t i = block * block_elements; i < end; i += 2) {
        float a = 0;
        float b = 0;
        random.normal_pair(a, b);
        out[static_cast<std::size_t>(i)] = convert(a);
        if (i + 1 < end) out[static_cast<std::size_t>(i) + 1] = convert(b);
      }
    }
  });
}

// Which rows are probes: round(m / 8), at least one, at random places; at m = 1 every second input.
std::vector<char> choose_probe_rows(std::int64_t m, int index, RandomStream& random) {
  std::vector<char> probe(static_cast<std::size_t>(m), 0);
  if (m == 1) {
    probe[0] = index % 2 == 1;
    return probe;
  }
  std::int64_t wanted = std::max<std::int64_t>(1, (m + 4) / 8);
  while (wanted > 0) {
    char& flag = probe[random.below(static_cast<std::uint64_t>(m))];
    wanted -= flag == 0;
    flag = 1;
  }
  return probe;
}

}  // namespace

const void* Weights::Matrix::data() const {
  return f32.empty() ? static_cast<const void*>(bf16.data()) : f32.data();
}

std::size_t Weights::Matrix::size_bytes() const {
  return bf16.size() * sizeof(std::uint16_t) + f32.size() * sizeof(float);
}

Weights generate_weights(const LayerTable& table, std::uint64_t seed, int threads) {
  constexpr auto sigma = static_cast<float>(weight_sigma);
  Weights weights;
  weights.matrices.resize(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto count = static_cast<std::size_t>(table[i].n * table[i].k);
    const std::array<std::uint64_t, 4> name{seed, stream_weights, i, 0};
    Weights::Matrix& matrix = weights.matrices[i];
    if (table[i].dtype == DType::bf16) {
      matrix.bf16.resize(count);
      fill_normal(matrix.bf16, name, threads, [](float v) { return float_to_bf16(v * sigma); });
    } else {
      matrix.f32.resize(count);
      fill_normal(matrix.f32, name, threads, [](float v) { return v * sigma; });
    }
  }
  weights.origin = generated_origin(seed);
  return weights;
}

std::string generated_origin(std::uint64_t seed) {
  return fmt::format("generated: normal, sigma {}, seed {}", weight_sigma, seed);
}

Input make_input(std::int64_t m, std::int64_t k, std::uint64_t seed, Layer layer, int index,
                 int threads) {
  Input input{m, k, std::vector<std::uint16_t>(static_cast<std::size_t>(m * k)), {}};
  const auto id = (static_cast<std::uint64_t>(layer) << 32) | static_cast<std::uint64_t>(m);
  const auto number = static_cast<std::uint64_t>(index);
  fill_normal(input.x, {seed, stream_x, id, number}, threads, float_to_bf16);

  RandomStream random{seed, stream_probe, id, number};
  input.probe = choose_probe_rows(m, index, random);
  for (std::int64_t row = 0; row < m; ++row) {
    if (input.probe[static_cast<std::size_t>(row)] == 0) continue;
    const auto begin = input.x.begin() + row * k;
    std::fill(begin, begin + k, std::uint16_t{0});
    const auto column = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(k)));
    constexpr std::uint64_t exponents = probe_exponent_max - probe_exponent_min + 1;
    const int exponent = probe_exponent_min + static_cast<int>(random.below(exponents));
    *(begin + column) = float_to_bf16(std::ldexp(1.0F, exponent));
  }
  return input;
}

}  // namespace slimgemm::judge
