// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_machine.cpp in a build without CUDA.
#include "tune/tune.hpp"

#include <slimgemm/error.hpp>

namespace slimgemm::tune {

Machine make_cuda_machine(std::optional<double>) {
  throw Error(
      ErrorCode::unsupported,
      "tuning needs a Hopper GPU and a build with the GPU backend: install the CUDA toolkit, "
      "configure with -DSLIMGEMM_CUDA=ON and build again");
}

}  // namespace slimgemm::tune
