// SPDX-License-Identifier: Apache-2.0
// A problem like the judge's own, small enough to run in milliseconds, and a sound contender for
// it.
#pragma once

#include "judge/contender.hpp"
#include "judge/run.hpp"
#include "support/bf16.hpp"

#include <cstring>
#include <utility>
#include <vector>

namespace slimgemm::judge::test {

inline LayerTable tiny_layers() {
  LayerTable table = layers();
  constexpr std::int64_t n[] = {48, 80, 64, 96, 32};
  constexpr std::int64_t k[] = {128, 64, 192, 100, 128};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i].n = n[i];
    table[i].k = k[i];
    table[i].slice_n = table[i].layer == Layer::unpooler ? 32 : n[i];
  }
  return table;
}

inline RunOptions tiny_options() {
  RunOptions options;
  options.problem.layers = tiny_layers();
  options.repeats = 8;
  options.empty_repeats = 3;
  options.ceiling_repeats = 1;
  return options;
}

inline std::unique_ptr<Executor> tiny_executor() { return make_cpu_executor(1, 1 << 16); }

// Right, plain and slow: FP32 sums of dense weights. The bad contenders derive from it.
class DenseContender : public Contender {
 public:
  explicit DenseContender(LayerTable table = tiny_layers())
      : table_(std::move(table)), weights_(table_.size()) {}

  [[nodiscard]] std::string name() const override { return "dense"; }

  void prepare(const WeightSet& weights) override {
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const auto count = static_cast<std::size_t>(weights[i].n * weights[i].k);
      weights_[i].resize(count);
      for (std::size_t j = 0; j < count; ++j) {
        weights_[i][j] = weights[i].dtype == DType::f32
                             ? static_cast<const float*>(weights[i].host)[j]
                             : bf16_to_float(static_cast<const std::uint16_t*>(weights[i].host)[j]);
      }
    }
  }

  void run(Layer layer, const void* x, std::int64_t m, void* out, void*) override {
    multiply(layer, static_cast<const std::uint16_t*>(x), m, out);
  }

  [[nodiscard]] std::int64_t weight_bytes(Layer layer, std::int64_t m) const override {
    const Shape shape = shape_of(layer, m);
    return shape.n * shape.k * size_bytes(shape.dtype);
  }

 protected:
  [[nodiscard]] Shape shape_of(Layer layer, std::int64_t m) const {
    return resolve({layer, m, true}, table_);
  }

  void multiply(Layer layer, const std::uint16_t* x, std::int64_t m, void* out) const {
    const Shape shape = shape_of(layer, m);
    const float* w = weights_[static_cast<std::size_t>(layer)].data();
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < shape.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.k; ++k) {
          sum += static_cast<double>(bf16_to_float(x[i * shape.k + k])) *
                 static_cast<double>(w[j * shape.k + k]);
        }
        store(shape, out, i, j, static_cast<float>(sum));
      }
    }
  }

  static void store(const Shape& shape, void* out, std::int64_t row, std::int64_t column,
                    float value) {
    const std::int64_t index = row * shape.n + column;
    if (shape.dtype == DType::f32) {
      static_cast<float*>(out)[index] = value;
    } else {
      static_cast<std::uint16_t*>(out)[index] = float_to_bf16(value);
    }
  }

  LayerTable table_;
  std::vector<std::vector<float>> weights_;
};

}  // namespace slimgemm::judge::test
