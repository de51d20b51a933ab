// SPDX-License-Identifier: Apache-2.0
// The baseline `sglang`: what SGLang's unquantised linear layers run on Hopper. They call PyTorch's
// F.linear without bias, which is one cuBLAS call on a handle set up as below; the router casts x
// to FP32 first and multiplies in FP32 without TF32.
#if SLIMGEMM_HAVE_CUBLAS
#include "judge/cuda_blas_baseline.hpp"
#include "judge/cuda_blas_library.hpp"

#include <memory>
#include <type_traits>

namespace slimgemm::judge {
namespace {

// PyTorch's default on compute capability 9.0: eight chunks of 4096 KiB.
constexpr std::size_t sglang_workspace_bytes = std::size_t{8} * 4096 * 1024;

struct DestroyHandle {
  void operator()(cublasHandle_t handle) const { static_cast<void>(blas().destroy(handle)); }
};
using BlasHandle = std::unique_ptr<std::remove_pointer_t<cublasHandle_t>, DestroyHandle>;

class SglangBaseline final : public BlasBaseline {
 public:
  using BlasBaseline::BlasBaseline;

  [[nodiscard]] std::string name() const override { return "sglang"; }

  void prepare(const WeightSet& weights) override {
    BlasBaseline::prepare(weights);
    cublasHandle_t handle = nullptr;
    check_blas(blas().create(&handle), "cublasCreate");
    handle_.reset(handle);
    workspace_ = DeviceMemory(sglang_workspace_bytes);
    // Default math: tensor cores for BF16, with reduced-precision reductions allowed; no TF32.
    check_blas(blas().set_math_mode(handle, CUBLAS_DEFAULT_MATH), "cublasSetMathMode");
  }

  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    const void* w = weights_of(layer);
    const Shape shape = shape_of(layer, m);
    const auto cuda_stream = static_cast<cudaStream_t>(stream);
    // In this order: a new stream takes the workspace away.
    check_blas(blas().set_stream(handle_.get(), cuda_stream), "cublasSetStream");
    check_blas(blas().set_workspace(handle_.get(), workspace_.data(), workspace_.size_bytes()),
               "cublasSetWorkspace");
    const int rows = static_cast<int>(shape.n);
    const int columns = static_cast<int>(m);
    const int depth = static_cast<int>(shape.k);
    const float one = 1;
    const float zero = 0;
    if (shape.dtype == DType::bf16) {
      check_blas(
          blas().gemm_ex(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, depth, &one, w,
                         CUDA_R_16BF, depth, x, CUDA_R_16BF, depth, &zero, out, CUDA_R_16BF, rows,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP),
          "cublasGemmEx");
      return;
    }
    const void* x_f32 = cast_to_f32(x, m, shape.k, cuda_stream);
    check_blas(blas().sgemm(handle_.get(), CUBLAS_OP_T, CUBLAS_OP_N, rows, columns, depth, &one,
                            static_cast<const float*>(w), depth, static_cast<const float*>(x_f32),
                            depth, &zero, static_cast<float*>(out), rows),
               "cublasSgemm");
  }

  [[nodiscard]] std::string describe(Layer layer, std::int64_t m) const override {
    return shape_of(layer, m).dtype == DType::bf16 ? "cublasGemmEx" : "cast to FP32 + cublasSgemm";
  }

 private:
  DeviceMemory workspace_;  // outlives the handle
  BlasHandle handle_;
};

}  // namespace

std::unique_ptr<Contender> make_sglang_baseline(int cuda_device, const Problem& problem) {
  return std::make_unique<SglangBaseline>(cuda_device, problem);
}

}  // namespace slimgemm::judge
#endif
