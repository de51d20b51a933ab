// SPDX-License-Identifier: Apache-2.0
#include "judge/cases.hpp"

#include <algorithm>
#include <cstddef>

namespace slimgemm::judge {
namespace {

// NVIDIA H200 data sheet.
constexpr double h200_bytes_per_us = 4.8e12 / 1e6;
constexpr double h200_flops_per_us = 989e12 / 1e6;

constexpr std::array<Load, 6> load_table = {{
    {"decode 1", 1, "one user, one token a step"},
    {"decode 16", 16, "16 users"},
    {"decode 32", 32, "32 users"},
    {"verify 1", 8, "one user checking an 8-token speculative draft"},
    {"verify 16", 128, "16 users x 8 draft tokens"},
    {"verify 32", 256, "32 users x 8 draft tokens"},
}};

constexpr std::array<Case, 9> extra_cases = {{
    {Layer::qkv_gate, 5, false},
    {Layer::unpooler, 7, false},
    {Layer::unpooler, 9, false},
    {Layer::router, 9, false},
    {Layer::o, 33, false},
    {Layer::pooler, 130, false},
    {Layer::router, 130, false},
    {Layer::qkv_gate, 512, false},
    {Layer::unpooler, 1000, false},
}};

}  // namespace

std::int64_t Case::n() const { return resolve(*this).n; }
std::int64_t Case::k() const { return info(layer).k; }
DType Case::dtype() const { return info(layer).dtype; }

const LayerTable& layers() {
  static const LayerTable table = {
      {Layer::qkv_gate, "qkv_gate", 2304, 8192, DType::bf16,
       "attention: query, key, value and gate projections fused", 2304, 0},
      {Layer::o, "o", 8192, 1024, DType::bf16, "attention output projection", 8192, 0},
      {Layer::pooler, "pooler", 4096, 8192, DType::bf16, "hidden size to MoE width", 4096, 0},
      {Layer::unpooler, "unpooler", 8192, 4096, DType::bf16, "MoE width to hidden size", 1024, 8},
      {Layer::router, "router", 256, 8192, DType::f32, "one score per expert, 256 experts", 256, 0},
  };
  return table;
}

const LayerInfo& info(Layer layer) { return layers().at(static_cast<std::size_t>(layer)); }
const std::array<Load, 6>& loads() { return load_table; }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Load& load : load_table) {
    for (const LayerInfo& layer : layers()) {
      cases.push_back({layer.layer, load.m, true});
    }
  }
  cases.insert(cases.end(), extra_cases.begin(), extra_cases.end());
  return cases;
}

const Problem& fixed_problem() {
  static const Problem problem = {{}, layers(), all_cases()};
  return problem;
}

Shape resolve(const Case& c, const LayerTable& table) {
  const LayerInfo& layer = table.at(static_cast<std::size_t>(c.layer));
  const std::int64_t n = c.m <= layer.slice_max_m ? layer.slice_n : layer.n;
  return {c.layer, layer.name, c.m, n, layer.k, layer.dtype, c.scored};
}

double shape_bytes(const Shape& shape) {
  const auto n = static_cast<double>(shape.n);
  const auto k = static_cast<double>(shape.k);
  const auto m = static_cast<double>(shape.m);
  const auto element = static_cast<double>(size_bytes(shape.dtype));
  return n * k * element + m * k * 2 + m * n * element;
}

double shape_flops(const Shape& shape) {
  return 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
         static_cast<double>(shape.k);
}

double floor_us(const Shape& shape) {
  return std::max(shape_bytes(shape) / h200_bytes_per_us, shape_flops(shape) / h200_flops_per_us);
}

double case_bytes(const Case& c) { return shape_bytes(resolve(c)); }
double case_flops(const Case& c) { return shape_flops(resolve(c)); }
double floor_us(const Case& c) { return floor_us(resolve(c)); }

}  // namespace slimgemm::judge
