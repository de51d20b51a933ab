// SPDX-License-Identifier: Apache-2.0
// unpack_image_cuda: dense weights out of a device image.
#include <slimgemm/device_image.hpp>

#include "cuda/check.hpp"
#include "cuda/device_memory.hpp"
#include "cuda/unpack.hpp"
#include "cuda/unpack_kernels.cuh"
#include "format/device_image.hpp"
#include "support/refuse.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <string>

namespace slimgemm {
namespace {

using cuda::unpack::Args;
using cuda::unpack::threads_per_cta;
using cuda::unpack::warps_per_cta;

void check_rows(const ImageLayout& layout, std::int64_t begin, std::int64_t end) {
  if (begin < 0 || end > layout.n || begin >= end || begin % format::tile_rows != 0) {
    refuse_argument("rows [" + std::to_string(begin) + ", " + std::to_string(end) +
                    "): the range must not be empty, must begin at a multiple of " +
                    std::to_string(format::tile_rows) + " and lie in [0, " +
                    std::to_string(layout.n) + ")");
  }
}

unsigned int ctas_of(std::uint64_t warps) {
  const std::uint64_t ctas = (warps + warps_per_cta - 1) / warps_per_cta;
  if (ctas > static_cast<std::uint64_t>(max_dimension)) {
    refuse_argument("the rows have " + std::to_string(warps) +
                    " tiles: decode fewer rows at a time");
  }
  return static_cast<unsigned int>(ctas);
}

}  // namespace

void cuda::load_unpack_kernels() {
  const void* const kernels[] = {
      reinterpret_cast<const void*>(cuda::unpack::unpack_bf16_tiles<Encoding::split12>),
      reinterpret_cast<const void*>(cuda::unpack::unpack_bf16_tiles<Encoding::raw16>),
      reinterpret_cast<const void*>(cuda::unpack::unpack_f32_tiles),
      reinterpret_cast<const void*>(cuda::unpack::unpack_exceptions),
  };
  for (const void* const kernel : kernels) {
    cudaFuncAttributes attributes{};
    check(cudaFuncGetAttributes(&attributes, kernel), "cudaFuncGetAttributes");
  }
}

void unpack_image_cuda(const ImageLayout& layout, const void* image, void* out,
                       std::int64_t row_begin, std::int64_t row_end, void* stream) {
  static_cast<void>(layout.size_bytes());  // refuses a layout that is none
  check_rows(layout, row_begin, row_end);
  if (image == nullptr || out == nullptr) refuse_argument("image or out is null");
  const cuda::DeviceGuard guard(
      cuda::device_of(image, "image", "for host memory there is read_image()"));
  const auto n = static_cast<std::uint64_t>(layout.n);
  const auto k = static_cast<std::uint64_t>(layout.k);
  const format::ImageOffsets at(layout.encoding, n, k);
  const auto rows = static_cast<std::uint64_t>(row_end - row_begin);
  const std::uint64_t row_bytes =
      k * (layout.encoding == Encoding::raw32 ? sizeof(float) : sizeof(std::uint16_t));
  Args args{};
  args.image = static_cast<const unsigned char*>(image);
  args.row_tile_bytes = at.row_tile_bytes;
  args.head_offset = at.head;
  args.more_offset = at.more;
  args.out = out;
  args.k = k;
  args.k_tiles = at.k_tiles;
  args.first_row_tile = static_cast<std::uint64_t>(row_begin) / format::tile_rows;
  args.row_tiles = format::tiles_along(rows, format::tile_rows);
  args.rows = rows;
  args.half_base = static_cast<std::uint32_t>(layout.window_base / 2) * 0x01010101u;
  args.aligned = row_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(out) % 16 == 0;

  auto* const on = static_cast<cudaStream_t>(stream);
  const unsigned int ctas = ctas_of(args.row_tiles * args.k_tiles);
  switch (layout.encoding) {
    case Encoding::split12:
      cuda::unpack::unpack_bf16_tiles<Encoding::split12><<<ctas, threads_per_cta, 0, on>>>(args);
      cuda::check_launch("unpack_bf16_tiles");
      cuda::unpack::unpack_exceptions<<<ctas_of(args.row_tiles), threads_per_cta, 0, on>>>(args);
      cuda::check_launch("unpack_exceptions");
      return;
    case Encoding::raw16:
      cuda::unpack::unpack_bf16_tiles<Encoding::raw16><<<ctas, threads_per_cta, 0, on>>>(args);
      cuda::check_launch("unpack_bf16_tiles");
      return;
    case Encoding::raw32:
      cuda::unpack::unpack_f32_tiles<<<ctas, threads_per_cta, 0, on>>>(args);
      cuda::check_launch("unpack_f32_tiles");
      return;
  }
}

}  // namespace slimgemm
