// SPDX-License-Identifier: Apache-2.0
// The problem of the judge: five layers, six loads, 39 shapes. The one list that the judge, the
// tests and the lab share. A shape file (shape_file.hpp) gives other layers and shapes.
#pragma once

#include <slimgemm/types.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::judge {

/// Index into a LayerTable. The names are those of the fixed problem's table.
enum class Layer : int { qkv_gate = 0, o = 1, pooler = 2, unpooler = 3, router = 4 };
inline constexpr int layer_count = 5;  // of the fixed problem

struct LayerInfo {
  Layer layer;  // its own place in the table
  std::string name;
  std::int64_t n;
  std::int64_t k;
  DType dtype;  // of W and of out
  std::string role;
  std::int64_t slice_n;      // rows computed at m <= slice_max_m (unpooler: 1024), else n
  std::int64_t slice_max_m;  // 8 for the unpooler, else 0
};

struct Load {
  std::string_view name;  // "decode 1"
  std::int64_t m;
  std::string_view models;
};

using LayerTable = std::vector<LayerInfo>;

/// One shape to judge: out is m x n(), x is m x k(). n(), k() and dtype() are the fixed problem's;
/// resolve() takes any table.
struct Case {
  Layer layer;
  std::int64_t m;
  bool scored;  // timed; the nine extra shapes are checked for correctness only

  [[nodiscard]] std::int64_t n() const;
  [[nodiscard]] std::int64_t k() const;
  [[nodiscard]] DType dtype() const;
  friend bool operator==(const Case&, const Case&) = default;
};

const LayerTable& layers();
const LayerInfo& info(Layer layer);
const std::array<Load, 6>& loads();
/// 30 scored shapes, load by load, then the nine extra ones.
std::vector<Case> all_cases();

/// Layers and the cases to judge on them.
struct Problem {
  std::string shape_file;  // where they come from; empty: the fixed problem, or a part of it
  LayerTable layers;
  std::vector<Case> cases;
};
/// The five layers and all_cases().
const Problem& fixed_problem();

/// A case with its sizes looked up. The judge runs on any layer table; the tests use small ones.
struct Shape {
  Layer layer;
  std::string name;  // of the layer
  std::int64_t m;
  std::int64_t n;  // rows of W computed
  std::int64_t k;
  DType dtype;
  bool scored;
};
Shape resolve(const Case& c, const LayerTable& table = layers());

/// Bytes that must move and floating-point operations of a shape at dense weights, and the floor
/// they set on an H200 (spec: max(bytes / 4.8 TB/s, FLOPs / 989 TFLOP/s)), in microseconds.
double shape_bytes(const Shape& shape);
double shape_flops(const Shape& shape);
double floor_us(const Shape& shape);
double case_bytes(const Case& c);
double case_flops(const Case& c);
double floor_us(const Case& c);

}  // namespace slimgemm::judge
