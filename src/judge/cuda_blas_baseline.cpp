// SPDX-License-Identifier: Apache-2.0
#if SLIMGEMM_HAVE_CUBLAS
#include "judge/cuda_blas_baseline.hpp"

#include "judge/cuda_blas_library.hpp"
#include "judge/cuda_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace slimgemm::judge {

std::int64_t max_case_m() {
  std::int64_t largest = 0;
  for (const Case& c : all_cases()) largest = std::max(largest, c.m);
  return largest;
}

std::int64_t max_case_k() {
  std::int64_t largest = 0;
  for (const LayerInfo& layer : layers()) largest = std::max(largest, layer.k);
  return largest;
}

BlasBaseline::BlasBaseline(int device) : device_(device) {
  blas();
  cuda::check(cudaSetDevice(device), "cudaSetDevice(" + std::to_string(device) + ")");
}

void BlasBaseline::prepare(const WeightSet& weights) {
  for (const LayerInfo& layer : layers()) {
    const WeightMatrix& w = weights[static_cast<std::size_t>(layer.layer)];
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
  x_f32_ = DeviceMemory(static_cast<std::size_t>(max_case_m() * max_case_k()) * sizeof(float));
}

std::int64_t BlasBaseline::weight_bytes(Layer layer, std::int64_t m) const {
  const Case c{layer, m, false};
  return c.n() * c.k() * size_bytes(c.dtype());
}

const void* BlasBaseline::weights_of(Layer layer) const {
  const void* device = weights_[static_cast<std::size_t>(layer)].device;
  if (device == nullptr) {
    throw Error(ErrorCode::invalid_argument, name() + ": run() before prepare()");
  }
  return device;
}

const void* BlasBaseline::cast_to_f32(const void* x, std::int64_t m, std::int64_t k,
                                      cudaStream_t stream) {
  if (static_cast<std::size_t>(m * k) * sizeof(float) > x_f32_.size_bytes()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: m = {} is above {}, the largest m that prepare() made room for",
                            name(), m, max_case_m()));
  }
  launch_cast_to_f32(x, x_f32_.as<float>(), m * k, stream);
  return x_f32_.data();
}

}  // namespace slimgemm::judge
#endif
