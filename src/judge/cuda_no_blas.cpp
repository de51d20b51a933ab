// SPDX-License-Identifier: Apache-2.0
// The cuBLAS baselines of a build that has CUDA, but not the headers of cuBLAS.
#if !SLIMGEMM_HAVE_CUBLAS
#include "judge/contender.hpp"
#include "judge/cuda_versions.hpp"

#include <slimgemm/error.hpp>

namespace slimgemm::judge {
namespace {

[[noreturn]] void throw_no_blas(const char* baseline) {
  throw Error(ErrorCode::unsupported,
              std::string("the baseline ") + baseline +
                  " needs cuBLAS, which this build was made without: configure where the CUDA "
                  "toolkit has cublasLt.h");
}

}  // namespace

std::unique_ptr<Contender> make_sglang_baseline(int, const Problem&) { throw_no_blas("sglang"); }
std::unique_ptr<Contender> make_best_blas_baseline(int, const Problem&) {
  throw_no_blas("best-blas");
}
std::string blas_version() { return "not in this build"; }

}  // namespace slimgemm::judge
#endif
