// SPDX-License-Identifier: Apache-2.0
// Whoever is judged or compared with: SlimGEMM itself, the baselines and outside libraries all
// stand behind this one interface and are timed by the same code.
#pragma once

#include "judge/cases.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// One row-major weight matrix; `device` is null on the CPU.
struct WeightMatrix {
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType dtype = DType::bf16;
  const void* host = nullptr;
  const void* device = nullptr;
};
/// One matrix a layer, in the order of the layer table.
using WeightSet = std::vector<WeightMatrix>;

class Contender {
 public:
  virtual ~Contender() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Once, untimed, at most 300 s. Throws on failure. `weights` is valid during the call only, but
  /// for the baselines, which may keep the device pointers (the judge keeps the weights alive).
  virtual void prepare(const WeightSet& weights) = 0;
  /// out = x @ W.T for one shape, on `stream` (a cudaStream_t; null on the CPU).
  virtual void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) = 0;
  /// Weight bytes that run() must read: the judge measures a streaming read of so many.
  [[nodiscard]] virtual std::int64_t weight_bytes(Layer layer, std::int64_t m) const = 0;
  /// One line on how this shape is served, for the report; may be empty.
  [[nodiscard]] virtual std::string describe(Layer, std::int64_t) const { return {}; }
};

/// SlimGEMM behind the judge's interface, on either device. cuda_device < 0: the CPU, with
/// cpu_threads threads (0: all hardware threads).
std::unique_ptr<Contender> make_slimgemm_contender(int cuda_device, int cpu_threads = 0,
                                                   const LayerTable& table = layers(),
                                                   bool batch_invariant = false);
/// An outside shared library (include/slimgemm/contender.h), for the five layers of the fixed
/// problem alone: their numbers are part of its ABI. Throws Error naming the path and what is wrong
/// with it.
std::unique_ptr<Contender> load_contender(const std::string& path, int cuda_device);
/// The baselines serve the cases of `problem` and no others.
/// oneDNN's BF16 matmul on prepacked weights (FP32 for FP32 layers), CPU. Throws Error(unsupported)
/// in a build without oneDNN.
std::unique_ptr<Contender> make_onednn_baseline(const Problem& problem = fixed_problem());
/// What SGLang's unquantised path dispatches on Hopper, and the fastest of all cuBLASLt heuristics
/// a shape. Throw Error(unsupported) in a build without cuBLAS.
std::unique_ptr<Contender> make_sglang_baseline(int cuda_device,
                                                const Problem& problem = fixed_problem());
std::unique_ptr<Contender> make_best_blas_baseline(int cuda_device,
                                                   const Problem& problem = fixed_problem());

}  // namespace slimgemm::judge
