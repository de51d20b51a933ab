// SPDX-License-Identifier: Apache-2.0
// What the cuBLAS baselines have in common: the problem, the weights as they are given, and the
// cast of x to FP32 for FP32 layers.
//
// cuBLAS is column-major: out (m x n, row-major) is an n x m matrix, made as op(A) * B with A = W
// (K x n, transposed) and B = x (K x m). So cuBLAS's m is n here, and its n is m.
#pragma once

#include "judge/contender.hpp"
#include "judge/cuda_handles.hpp"

#include <cstdint>

namespace slimgemm::judge {

class BlasBaseline : public Contender {
 public:
  /// Throws Error(unsupported) if cuBLAS or the device is missing.
  BlasBaseline(int device, Problem problem);
  /// Keeps the device pointers. Throws Error(invalid_argument) naming a matrix that is not as the
  /// layer table says or is not on the device.
  void prepare(const WeightSet& weights) override;
  [[nodiscard]] std::int64_t weight_bytes(Layer layer, std::int64_t m) const override;

 protected:
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] Shape shape_of(Layer layer, std::int64_t m) const {
    return resolve({layer, m, false}, problem_.layers);
  }
  /// The layer's weights on the device. Throws Error(invalid_argument) before prepare().
  [[nodiscard]] const void* weights_of(Layer layer) const;
  /// x as FP32, cast by a kernel on `stream`; valid until the next call. m x k: at most the largest
  /// of the problem's FP32 cases.
  const void* cast_to_f32(const void* x, std::int64_t m, std::int64_t k, cudaStream_t stream);

 private:
  int device_;
  Problem problem_;
  WeightSet weights_;
  DeviceMemory x_f32_;
};

}  // namespace slimgemm::judge
