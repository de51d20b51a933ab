// SPDX-License-Identifier: Apache-2.0
// What packs on a GPU, in a build without CUDA.
#include <slimgemm/device_image.hpp>
#include <slimgemm/packed.hpp>

#include <string>

namespace slimgemm {
namespace {

[[noreturn]] void refuse(const char* function) {
  throw Error(ErrorCode::unsupported,
              std::string(function) +
                  ": this build has no GPU backend. Use pack(), or configure with a CUDA "
                  "toolkit and -DSLIMGEMM_CUDA=ON");
}

}  // namespace

PackedMatrix pack_cuda(const std::uint16_t*, std::int64_t, std::int64_t, const PackOptions&,
                       void*) {
  refuse("pack_cuda");
}

ImageLayout plan_image_cuda(const std::uint16_t*, std::int64_t, std::int64_t, const PackOptions&,
                            std::int64_t, void*) {
  refuse("plan_image_cuda");
}

void pack_image_cuda(const std::uint16_t*, const ImageLayout&, void*, void*) {
  refuse("pack_image_cuda");
}

void unpack_image_cuda(const ImageLayout&, const void*, void*, std::int64_t, std::int64_t, void*) {
  refuse("unpack_image_cuda");
}

}  // namespace slimgemm
