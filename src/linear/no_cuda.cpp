// SPDX-License-Identifier: Apache-2.0
#include "linear/backend.hpp"

namespace slimgemm {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "this build of slimgemm has no GPU backend: rebuild where nvcc is on PATH, or use "
              "Device::cpu");
}

}  // namespace

std::shared_ptr<const Linear::Backend> make_cuda_backend(const PackedMatrix&,
                                                         const LinearOptions&) {
  refuse();
}

std::shared_ptr<const Linear::Backend> make_cuda_view(const ImageLayout&, const void*,
                                                      const LinearOptions&) {
  refuse();
}

}  // namespace slimgemm
