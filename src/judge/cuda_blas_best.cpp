// SPDX-License-Identifier: Apache-2.0
// The baseline `best-blas`: for every shape of the problem the fastest of all algorithms that
// cuBLASLt's heuristics offer, found by timing each in the judge's manner.
#if SLIMGEMM_HAVE_CUBLAS
#include "judge/cuda_blas_baseline.hpp"
#include "judge/cuda_blas_library.hpp"
#include "judge/cuda_clock.hpp"
#include "judge/cuda_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace slimgemm::judge {
namespace {

constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
constexpr int heuristics_asked = 256;
constexpr int screening_repeats = 15;
constexpr int finalists = 4;
constexpr int final_repeats = 41;

/// Owns a cuBLASLt handle; `destroy` is the member of BlasLibrary that ends it.
template <class Handle, auto destroy>
struct LtDestroy {
  void operator()(std::remove_pointer_t<Handle>* handle) const {
    static_cast<void>((blas().*destroy)(handle));
  }
};
template <class Handle, auto destroy>
using LtOwner = std::unique_ptr<std::remove_pointer_t<Handle>, LtDestroy<Handle, destroy>>;
using LtHandle = LtOwner<cublasLtHandle_t, &BlasLibrary::lt_destroy>;
using LtDesc = LtOwner<cublasLtMatmulDesc_t, &BlasLibrary::lt_desc_destroy>;
using LtLayout = LtOwner<cublasLtMatrixLayout_t, &BlasLibrary::lt_layout_destroy>;
using LtPreference = LtOwner<cublasLtMatmulPreference_t, &BlasLibrary::lt_preference_destroy>;

LtLayout make_layout(cudaDataType type, std::int64_t rows, std::int64_t columns) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(blas().lt_layout_create(&layout, type, static_cast<std::uint64_t>(rows),
                                     static_cast<std::uint64_t>(columns), rows),
             "cublasLtMatrixLayoutCreate");
  return LtLayout(layout);
}

LtDesc make_desc() {
  cublasLtMatmulDesc_t raw = nullptr;
  check_blas(blas().lt_desc_create(&raw, CUBLAS_COMPUTE_32F, CUDA_R_32F),
             "cublasLtMatmulDescCreate");
  LtDesc desc(raw);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(blas().lt_desc_set(raw, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed),
             "cublasLtMatmulDescSetAttribute");
  return desc;
}

/// One shape as cuBLASLt sees it, and the algorithm chosen for it.
struct LtProblem {
  explicit LtProblem(const Shape& shape)
      : desc(make_desc()),
        w(make_layout(type_of(shape), shape.k, shape.n)),
        x(make_layout(type_of(shape), shape.k, shape.m)),
        out(make_layout(type_of(shape), shape.n, shape.m)) {}

  static cudaDataType type_of(const Shape& shape) {
    return shape.dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
  }

  LtDesc desc;
  LtLayout w;
  LtLayout x;
  LtLayout out;
  cublasLtMatmulHeuristicResult_t chosen{};
  std::string description;
};

using ShapeKey = std::pair<Layer, std::int64_t>;  // layer, m

class BestBlasBaseline final : public BlasBaseline {
 public:
  using BlasBaseline::BlasBaseline;

  [[nodiscard]] std::string name() const override { return "best-blas"; }
  void prepare(const WeightSet& weights) override;
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override;
  [[nodiscard]] std::string describe(Layer layer, std::int64_t m) const override;

 private:
  [[nodiscard]] std::vector<cublasLtMatmulHeuristicResult_t> heuristics(const Shape& shape,
                                                                        const LtProblem& p) const;
  [[nodiscard]] cublasStatus_t enqueue(const Shape& shape, const LtProblem& problem,
                                       const cublasLtMatmulAlgo_t& algorithm, const void* x,
                                       void* out, cudaStream_t stream);
  void choose(const Shape& shape, LtProblem& problem, const void* x, void* out, ReplayClock& clock);

  LtHandle handle_;
  DeviceMemory workspace_;
  std::map<ShapeKey, LtProblem> problems_;
};

void BestBlasBaseline::prepare(const WeightSet& weights) {
  BlasBaseline::prepare(weights);
  cublasLtHandle_t handle = nullptr;
  check_blas(blas().lt_create(&handle), "cublasLtCreate");
  handle_.reset(handle);
  workspace_ = DeviceMemory(workspace_bytes);
  problems_.clear();

  ReplayClock clock(device());
  std::size_t x_values = 0;
  std::size_t out_bytes = 0;
  for (const Case& c : problem().cases) {
    const Shape shape = resolve(c, problem().layers);
    x_values = std::max(x_values, static_cast<std::size_t>(shape.m * shape.k));
    out_bytes =
        std::max(out_bytes, static_cast<std::size_t>(shape.m * shape.n * size_bytes(shape.dtype)));
  }
  const DeviceMemory x(x_values * 2);
  const DeviceMemory out(out_bytes);
  launch_fill_bf16(x.data(), static_cast<std::int64_t>(x_values), 7, clock.stream());
  for (const Case& c : problem().cases) {
    const ShapeKey key{c.layer, c.m};
    if (problems_.count(key) != 0) continue;
    const Shape shape = resolve(c, problem().layers);
    choose(shape, problems_.emplace(key, LtProblem(shape)).first->second, x.data(), out.data(),
           clock);
  }
}

std::vector<cublasLtMatmulHeuristicResult_t> BestBlasBaseline::heuristics(
    const Shape& shape, const LtProblem& p) const {
  cublasLtMatmulPreference_t raw = nullptr;
  check_blas(blas().lt_preference_create(&raw), "cublasLtMatmulPreferenceCreate");
  const LtPreference preference(raw);
  const std::uint64_t limit = workspace_bytes;
  check_blas(
      blas().lt_preference_set(raw, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit),
      "cublasLtMatmulPreferenceSetAttribute");
  std::vector<cublasLtMatmulHeuristicResult_t> found(heuristics_asked);
  int count = 0;
  check_blas(blas().lt_heuristic(handle_.get(), p.desc.get(), p.w.get(), p.x.get(), p.out.get(),
                                 p.out.get(), raw, heuristics_asked, found.data(), &count),
             "cublasLtMatmulAlgoGetHeuristic");
  found.resize(static_cast<std::size_t>(count));
  std::erase_if(found, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  if (found.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("best-blas: cuBLASLt offers no algorithm for {} "
                            "at m = {}",
                            shape.name, shape.m));
  }
  return found;
}

cublasStatus_t BestBlasBaseline::enqueue(const Shape& shape, const LtProblem& problem,
                                         const cublasLtMatmulAlgo_t& algorithm, const void* x,
                                         void* out, cudaStream_t stream) {
  const float one = 1;
  const float zero = 0;
  const void* input = shape.dtype == DType::f32 ? cast_to_f32(x, shape.m, shape.k, stream) : x;
  return blas().lt_matmul(handle_.get(), problem.desc.get(), &one, weights_of(shape.layer),
                          problem.w.get(), input, problem.x.get(), &zero, out, problem.out.get(),
                          out, problem.out.get(), &algorithm, workspace_.data(),
                          workspace_.size_bytes(), stream);
}

void BestBlasBaseline::choose(const Shape& shape, LtProblem& problem, const void* x, void* out,
                              ReplayClock& clock) {
  struct Candidate {
    double time_us;
    std::size_t index;
    GraphExec graph;
  };
  const auto offered = heuristics(shape, problem);
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    // What the heuristics offer may still be refused when it is run: such an offer is passed over.
    if (enqueue(shape, problem, offered[i].algo, x, out, clock.stream()) != CUBLAS_STATUS_SUCCESS) {
      continue;
    }
    cuda::check(cudaStreamSynchronize(clock.stream()),
                "cudaStreamSynchronize after cublasLtMatmul");
    GraphExec graph = capture(clock.stream(), [&](cudaStream_t stream) {
      check_blas(enqueue(shape, problem, offered[i].algo, x, out, stream), "cublasLtMatmul");
    });
    const double time_us = clock.median_us(graph.get(), {screening_repeats});
    candidates.push_back({time_us, i, std::move(graph)});
    std::sort(candidates.begin(), candidates.end(),
              [](const Candidate& a, const Candidate& b) { return a.time_us < b.time_us; });
    if (candidates.size() > finalists) candidates.pop_back();
  }
  if (candidates.empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("best-blas: none of the {} algorithms that cuBLASLt offers for {} at "
                            "m = {} runs",
                            offered.size(), shape.name, shape.m));
  }
  for (Candidate& candidate : candidates) {
    candidate.time_us = clock.median_us(candidate.graph.get(), {final_repeats});
  }
  const auto best = std::min_element(
      candidates.begin(), candidates.end(),
      [](const Candidate& a, const Candidate& b) { return a.time_us < b.time_us; });
  problem.chosen = offered[best->index];
  problem.description = fmt::format("{}cublasLtMatmul, heuristic {} of {}",
                                    shape.dtype == DType::f32 ? "cast to FP32 + " : "",
                                    best->index + 1, offered.size());
}

void BestBlasBaseline::run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) {
  const auto found = problems_.find(ShapeKey{layer, m});
  if (found == problems_.end()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("best-blas: {} at m = {} is none of the judge's shapes, the only ones "
                            "that prepare() chose an algorithm for",
                            shape_of(layer, m).name, m));
  }
  check_blas(enqueue(shape_of(layer, m), found->second, found->second.chosen.algo, x, out,
                     static_cast<cudaStream_t>(stream)),
             "cublasLtMatmul");
}

std::string BestBlasBaseline::describe(Layer layer, std::int64_t m) const {
  const auto found = problems_.find(ShapeKey{layer, m});
  return found == problems_.end() ? std::string() : found->second.description;
}

}  // namespace

std::unique_ptr<Contender> make_best_blas_baseline(int cuda_device, const Problem& problem) {
  return std::make_unique<BestBlasBaseline>(cuda_device, problem);
}

}  // namespace slimgemm::judge
#endif
