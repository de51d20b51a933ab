// SPDX-License-Identifier: Apache-2.0
// cuBLAS and cuBLASLt, loaded when first used, so that one binary runs with and without them.
#pragma once

#include <cublasLt.h>
#include <cublas_v2.h>

#include <string>

namespace slimgemm::judge {

/// The functions used, by the names that they have without their prefix.
struct BlasLibrary {
  // cublas_v2.h declares a second, inline cublasGemmEx, so that decltype cannot name this one.
  using GemmEx = cublasStatus_t (*)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int,
                                    int, const void*, const void*, cudaDataType, int, const void*,
                                    cudaDataType, int, const void*, void*, cudaDataType, int,
                                    cublasComputeType_t, cublasGemmAlgo_t);
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  decltype(&cublasSetWorkspace_v2) set_workspace = nullptr;
  decltype(&cublasSetMathMode) set_math_mode = nullptr;
  decltype(&cublasSgemm_v2) sgemm = nullptr;
  GemmEx gemm_ex = nullptr;
  decltype(&cublasGetStatusString) status_string = nullptr;

  decltype(&cublasLtGetVersion) lt_version = nullptr;
  decltype(&cublasLtCreate) lt_create = nullptr;
  decltype(&cublasLtDestroy) lt_destroy = nullptr;
  decltype(&cublasLtMatmul) lt_matmul = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) lt_heuristic = nullptr;
  decltype(&cublasLtMatmulDescCreate) lt_desc_create = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) lt_desc_set = nullptr;
  decltype(&cublasLtMatmulDescDestroy) lt_desc_destroy = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) lt_layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) lt_layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) lt_preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) lt_preference_set = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) lt_preference_destroy = nullptr;

  std::string path;  // of libcublasLt, as it was found
};

/// Loads libcublasLt.so and libcublas.so, from the folder that SLIMGEMM_CUBLAS_DIR names if it is
/// set, from the system's library path, or from the CUDA toolkit of the build. Throws
/// Error(unsupported) "cuBLAS not found: ..." naming where it looked.
const BlasLibrary& blas();

/// Throws Error(device_error) naming the call and the status unless it is success.
void check_blas(cublasStatus_t status, const char* call);

}  // namespace slimgemm::judge
