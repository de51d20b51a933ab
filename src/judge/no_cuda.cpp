// SPDX-License-Identifier: Apache-2.0
// Stands in for the cuda_* files in a build without CUDA.
#include "judge/contender.hpp"
#include "judge/cuda_facts.hpp"
#include "judge/executor.hpp"

#include <slimgemm/error.hpp>

namespace slimgemm::judge {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::unsupported,
              what +
                  " needs a build with the GPU backend. Install the CUDA toolkit, configure with "
                  "-DSLIMGEMM_CUDA=ON and build again, or use --device cpu.");
}

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(int) { refuse("judging on a GPU"); }
int cuda_device_count() { return 0; }
CudaFacts cuda_facts() { return {}; }
std::unique_ptr<Contender> make_sglang_baseline(int, const Problem&) {
  refuse("the baseline sglang");
}
std::unique_ptr<Contender> make_best_blas_baseline(int, const Problem&) {
  refuse("the baseline best-blas");
}

}  // namespace slimgemm::judge
