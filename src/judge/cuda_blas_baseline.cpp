// SPDX-License-Identifier: Apache-2.0
#if SLIMGEMM_HAVE_CUBLAS
#include "judge/cuda_blas_baseline.hpp"

#include "judge/cuda_blas_library.hpp"
#include "judge/cuda_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace slimgemm::judge {

BlasBaseline::BlasBaseline(int device, Problem problem)
    : device_(device), problem_(std::move(problem)) {
  blas();
  cuda::check(cudaSetDevice(device), "cudaSetDevice(" + std::to_string(device) + ")");
}

void BlasBaseline::prepare(const WeightSet& weights) {
  for (std::size_t i = 0; i < problem_.layers.size(); ++i) {
    const LayerInfo& layer = problem_.layers[i];
    const WeightMatrix& w = weights.at(i);
    if (w.n != layer.n || w.k != layer.k || w.dtype != layer.dtype) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: the baseline takes {} x {} {}, but was given {} x {} {}",
                              layer.name, layer.n, layer.k, slimgemm::name(layer.dtype), w.n, w.k,
                              slimgemm::name(w.dtype)));
    }
    if (w.device == nullptr) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: the weights are not on the device", layer.name));
    }
  }
  cuda::check(cudaSetDevice(device_), "cudaSetDevice");
  weights_ = weights;
  std::int64_t x_values = 0;
  for (const Case& c : problem_.cases) {
    const Shape shape = resolve(c, problem_.layers);
    if (shape.dtype == DType::f32) x_values = std::max(x_values, shape.m * shape.k);
  }
  x_f32_ = DeviceMemory();
  if (x_values > 0) x_f32_ = DeviceMemory(static_cast<std::size_t>(x_values) * sizeof(float));
}

std::int64_t BlasBaseline::weight_bytes(Layer layer, std::int64_t m) const {
  const Shape shape = shape_of(layer, m);
  return shape.n * shape.k * size_bytes(shape.dtype);
}

const void* BlasBaseline::weights_of(Layer layer) const {
  const auto index = static_cast<std::size_t>(layer);
  const void* device = index < weights_.size() ? weights_[index].device : nullptr;
  if (device == nullptr) {
    throw Error(ErrorCode::invalid_argument, name() + ": run() before prepare()");
  }
  return device;
}

const void* BlasBaseline::cast_to_f32(const void* x, std::int64_t m, std::int64_t k,
                                      cudaStream_t stream) {
  if (static_cast<std::size_t>(m * k) * sizeof(float) > x_f32_.size_bytes()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: an x of {} x {} has more values than prepare() made room for",
                            name(), m, k));
  }
  launch_cast_to_f32(x, x_f32_.as<float>(), m * k, stream);
  return x_f32_.data();
}

}  // namespace slimgemm::judge
#endif
