// SPDX-License-Identifier: Apache-2.0
#if SLIMGEMM_HAVE_CUBLAS
#include "judge/cuda_blas_library.hpp"

#include "judge/cuda_versions.hpp"

#include <slimgemm/error.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

namespace slimgemm::judge {
namespace {

constexpr int known_majors[] = {13, 12};

/// The handles stay open for the life of the process: cuBLAS does not support being unloaded.
struct Opened {
  void* lt = nullptr;
  void* blas = nullptr;
  std::string lt_path;
};

Opened open_libraries() {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("SLIMGEMM_CUBLAS_DIR"); folder != nullptr && *folder != 0) {
    folders.push_back(std::string(folder) + "/");
  }
  folders.emplace_back();  // the system's library path
  folders.emplace_back(SLIMGEMM_CUBLAS_TOOLKIT_DIR "/");
  std::string tried;
  for (const std::string& folder : folders) {
    for (int major : known_majors) {
      Opened opened;
      opened.lt_path = fmt::format("{}libcublasLt.so.{}", folder, major);
      const std::string blas_path = fmt::format("{}libcublas.so.{}", folder, major);
      // libcublas needs libcublasLt, and finds the one that is already loaded.
      opened.lt = dlopen(opened.lt_path.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (opened.lt != nullptr) opened.blas = dlopen(blas_path.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (opened.blas != nullptr) return opened;
      const char* reason = dlerror();
      tried += fmt::format("\n  {}", reason != nullptr ? reason : opened.lt_path);
    }
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("cuBLAS not found: set SLIMGEMM_CUBLAS_DIR to the folder that holds "
                          "libcublas.so.{} and libcublasLt.so.{}. Tried:{}",
                          known_majors[0], known_majors[0], tried));
}

template <class Function>
void look_up(Function& function, void* library, const char* name) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("cuBLAS has no function {}: it is older than "
                            "CUDA 12; set SLIMGEMM_CUBLAS_DIR to a newer one",
                            name));
  }
}

BlasLibrary load() {
  const Opened opened = open_libraries();
  BlasLibrary b;
  b.path = opened.lt_path;
  look_up(b.create, opened.blas, "cublasCreate_v2");
  look_up(b.destroy, opened.blas, "cublasDestroy_v2");
  look_up(b.set_stream, opened.blas, "cublasSetStream_v2");
  look_up(b.set_workspace, opened.blas, "cublasSetWorkspace_v2");
  look_up(b.set_math_mode, opened.blas, "cublasSetMathMode");
  look_up(b.sgemm, opened.blas, "cublasSgemm_v2");
  look_up(b.gemm_ex, opened.blas, "cublasGemmEx");
  look_up(b.status_string, opened.blas, "cublasGetStatusString");
  look_up(b.lt_version, opened.lt, "cublasLtGetVersion");
  look_up(b.lt_create, opened.lt, "cublasLtCreate");
  look_up(b.lt_destroy, opened.lt, "cublasLtDestroy");
  look_up(b.lt_matmul, opened.lt, "cublasLtMatmul");
  look_up(b.lt_heuristic, opened.lt, "cublasLtMatmulAlgoGetHeuristic");
  look_up(b.lt_desc_create, opened.lt, "cublasLtMatmulDescCreate");
  look_up(b.lt_desc_set, opened.lt, "cublasLtMatmulDescSetAttribute");
  look_up(b.lt_desc_destroy, opened.lt, "cublasLtMatmulDescDestroy");
  look_up(b.lt_layout_create, opened.lt, "cublasLtMatrixLayoutCreate");
  look_up(b.lt_layout_destroy, opened.lt, "cublasLtMatrixLayoutDestroy");
  look_up(b.lt_preference_create, opened.lt, "cublasLtMatmulPreferenceCreate");
  look_up(b.lt_preference_set, opened.lt, "cublasLtMatmulPreferenceSetAttribute");
  look_up(b.lt_preference_destroy, opened.lt, "cublasLtMatmulPreferenceDestroy");
  return b;
}

}  // namespace

const BlasLibrary& blas() {
  static const BlasLibrary library = load();
  return library;
}

void check_blas(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::device_error,
              fmt::format("{} failed: {} ({})", call, blas().status_string(status),
                          static_cast<int>(status)));
}

std::string blas_version() {
  try {
    // major * 10000 + minor * 100 + patch
    const std::size_t version = blas().lt_version();
    return fmt::format("{}.{}.{}, {}", version / 10000, version / 100 % 100, version % 100,
                       blas().path);
  } catch (const Error&) {
    return "not found";
  }
}

}  // namespace slimgemm::judge
#endif
