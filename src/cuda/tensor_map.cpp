// SPDX-License-Identifier: Apache-2.0
#include "cuda/tensor_map.hpp"

#include "cuda/check.hpp"
#include "format/layout.hpp"

#include <cuda_runtime_api.h>

#include <string>

namespace slimgemm::cuda {
namespace {

using EncodeTiled = decltype(&cuTensorMapEncodeTiled);

// Looked up through the runtime, so that nothing links against libcuda.
EncodeTiled encode_tiled() {
  static const EncodeTiled function = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                           cudaEnableDefault, &result),
          "look-up of cuTensorMapEncodeTiled");
    if (result != cudaDriverEntryPointSuccess || entry == nullptr) {
      throw Error(ErrorCode::unsupported,
                  "the CUDA driver has no cuTensorMapEncodeTiled: install driver 525 or newer");
    }
    return reinterpret_cast<EncodeTiled>(entry);
  }();
  return function;
}

}  // namespace

bool x_is_aligned(const std::uint16_t* x, std::int64_t row_stride) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && row_stride % 8 == 0;
}

CUtensorMap make_x_map(const std::uint16_t* x, std::int64_t m, std::int64_t k,
                       std::int64_t row_stride, int box_rows, int box_k_tiles) {
  const cuuint64_t sizes[3] = {format::tile_k, static_cast<cuuint64_t>(m),
                               static_cast<cuuint64_t>(k / format::tile_k)};
  const cuuint64_t strides_bytes[2] = {static_cast<cuuint64_t>(row_stride) * 2, format::tile_k * 2};
  const cuuint32_t box[3] = {format::tile_k, static_cast<cuuint32_t>(box_rows),
                             static_cast<cuuint32_t>(box_k_tiles)};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status =
      encode_tiled()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<std::uint16_t*>(x),
                     sizes, strides_bytes, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                     CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw Error(ErrorCode::device_error,
                "cuTensorMapEncodeTiled failed with status " + std::to_string(status) +
                    " for m=" + std::to_string(m) + " k=" + std::to_string(k) + " row stride " +
                    std::to_string(row_stride) + " box " + std::to_string(box_rows) + " x " +
                    std::to_string(box_k_tiles));
  }
  return map;
}

}  // namespace slimgemm::cuda
