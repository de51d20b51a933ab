// SPDX-License-Identifier: Apache-2.0
#include "judge/safetensors.hpp"

#include "checkpoint/safetensors_file.hpp"
#include "support/bf16.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <span>

namespace slimgemm::judge {
namespace {

using checkpoint::SafetensorsFile;
using checkpoint::Tensor;

template <typename Element>
std::vector<Element> read_all(const SafetensorsFile& file, const Tensor& tensor) {
  std::vector<Element> values(tensor.size_bytes() / sizeof(Element));
  file.read(tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

[[noreturn]] void refuse(const std::string& path, const LayerInfo& layer, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: tensor {} {}", path, layer.name, what));
}

const Tensor& find_layer(const SafetensorsFile& file, const std::string& path,
                         const LayerInfo& layer) {
  const std::string layer_name(layer.name);
  const Tensor* tensor = file.header().find(layer_name);
  if (tensor == nullptr) tensor = file.header().find(layer_name + ".weight");
  if (tensor == nullptr) {
    refuse(path, layer, fmt::format("is missing, and so is {}.weight", layer.name));
  }
  const bool f32_layer = layer.dtype == DType::f32;
  if (tensor->dtype != "BF16" && !(f32_layer && tensor->dtype == "F32")) {
    refuse(path, layer,
           fmt::format("is {}; it must be {}", tensor->dtype, f32_layer ? "F32 or BF16" : "BF16"));
  }
  const std::vector<std::uint64_t> expected{static_cast<std::uint64_t>(layer.n),
                                            static_cast<std::uint64_t>(layer.k)};
  if (tensor->shape != expected) {
    refuse(path, layer,
           fmt::format("has shape [{}]; it must be [{}, {}]", fmt::join(tensor->shape, ", "),
                       layer.n, layer.k));
  }
  return *tensor;
}

template <typename Element, typename ToFloat>
void require_finite(const std::vector<Element>& values, const std::string& path,
                    const LayerInfo& layer, ToFloat to_float) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(to_float(values[i]))) continue;
    const auto k = static_cast<std::size_t>(layer.k);
    refuse(path, layer,
           fmt::format("holds {} at row {}, column {}; the judge needs finite weights",
                       to_float(values[i]), i / k, i % k));
  }
}

}  // namespace

Weights load_safetensors(const std::string& path, const LayerTable& table) {
  const SafetensorsFile file(path);
  Weights weights;
  weights.matrices.resize(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const LayerInfo& layer = table[i];
    const Tensor& tensor = find_layer(file, path, layer);
    Weights::Matrix& matrix = weights.matrices[i];
    if (tensor.dtype == "F32") {
      matrix.f32 = read_all<float>(file, tensor);
      require_finite(matrix.f32, path, layer, [](float value) { return value; });
      continue;
    }
    matrix.bf16 = read_all<std::uint16_t>(file, tensor);
    require_finite(matrix.bf16, path, layer, bf16_to_float);
    if (layer.dtype == DType::f32) {
      matrix.f32.resize(matrix.bf16.size());
      std::transform(matrix.bf16.begin(), matrix.bf16.end(), matrix.f32.begin(), bf16_to_float);
      matrix.bf16.clear();
    }
  }
  weights.origin = "file " + path;
  return weights;
}

}  // namespace slimgemm::judge
