// SPDX-License-Identifier: Apache-2.0
// pack_cuda of a build without CUDA.
#include <slimgemm/packed.hpp>

namespace slimgemm {

PackedMatrix pack_cuda(const std::uint16_t*, std::int64_t, std::int64_t, const PackOptions&,
                       void*) {
  throw Error(ErrorCode::unsupported,
              "pack_cuda: this build has no GPU backend. Use pack(), or configure with a CUDA "
              "toolkit and -DSLIMGEMM_CUDA=ON");
}

}  // namespace slimgemm
