// SPDX-License-Identifier: Apache-2.0
// What the judge multiplies: the weight matrices and the activations, made from a seed. The
// same seed gives the same bits whatever the number of threads.
#pragma once

#include "judge/cases.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// Row-major matrices in host memory, in the order of the layers: BF16 as raw words in `bf16`,
/// FP32 in `f32`; the other vector of a layer is empty.
struct Weights {
  struct Matrix {
    std::vector<std::uint16_t> bf16;
    std::vector<float> f32;
    [[nodiscard]] const void* data() const;
    [[nodiscard]] std::size_t size_bytes() const;
  };
  std::vector<Matrix> matrices;
  std::string origin;  ///< for the report: how they were made or where they come from
};

/// Standard deviation of generated weights; activations have 1.
inline constexpr double weight_sigma = 0.02;

/// Normal weights, rounded to BF16 where the layer is BF16. threads 0: all hardware threads.
Weights generate_weights(const LayerTable& table, std::uint64_t seed, int threads = 0);
/// How the report describes them.
std::string generated_origin(std::uint64_t seed);

/// One x: m x k BF16, row-major.
struct Input {
  std::int64_t m = 0;
  std::int64_t k = 0;
  std::vector<std::uint16_t> x;
  /// m flags: rows with one nonzero entry, a power of two. Their result is an exactly scaled column
  /// of the weights.
  std::vector<char> probe;
};

/// Exponents of the probe rows' power of two.
inline constexpr int probe_exponent_min = -6;
inline constexpr int probe_exponent_max = 6;

/// Input `index` of a shape. Entries are normal; about one row in eight, at least one, is a probe
/// row at a random place. At m = 1 the inputs alternate: even ones are dense, odd ones probes.
Input make_input(std::int64_t m, std::int64_t k, std::uint64_t seed, Layer layer, int index,
                 int threads = 0);

/// How many different inputs a shape is judged on: at least three, and at m = 1 five, three dense
/// and two probes. Odd, so that contender and baseline take turns at going first on each of them.
constexpr int input_count(std::int64_t m) { return m == 1 ? 5 : 3; }

}  // namespace slimgemm::judge
