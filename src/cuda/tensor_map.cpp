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

struct Map {
  cuuint32_t dimensions;
  CUtensorMapDataType type;
  const void* address;
  cuuint64_t sizes[3];
  cuuint64_t strides_bytes[2];
  cuuint32_t box[3];
  CUtensorMapSwizzle swizzle;
};

CUtensorMap encode(const Map& m) {
  const cuuint32_t element_strides[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult status = encode_tiled()(
      &map, m.type, m.dimensions, const_cast<void*>(m.address), m.sizes, m.strides_bytes, m.box,
      element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, m.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    const auto list = [](const auto& values) {
      std::string text;
      for (const auto value : values) text += (text.empty() ? "" : " x ") + std::to_string(value);
      return text;
    };
    throw Error(ErrorCode::device_error, "cuTensorMapEncodeTiled failed with status " +
                                             std::to_string(status) + " for sizes " +
                                             list(m.sizes) + ", strides " + list(m.strides_bytes) +
                                             " bytes, box " + list(m.box));
  }
  return map;
}

}  // namespace

bool x_is_aligned(const std::uint16_t* x, std::int64_t row_stride) {
  return reinterpret_cast<std::uintptr_t>(x) % 16 == 0 && row_stride % 8 == 0;
}

CUtensorMap make_x_map(const std::uint16_t* x, std::int64_t m, std::int64_t k,
                       std::int64_t row_stride, int box_rows, int box_k_tiles) {
  return encode({.dimensions = 3,
                 .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 .address = x,
                 .sizes = {format::tile_k, static_cast<cuuint64_t>(m),
                           static_cast<cuuint64_t>(k / format::tile_k)},
                 .strides_bytes = {static_cast<cuuint64_t>(row_stride) * 2, format::tile_k * 2},
                 .box = {format::tile_k, static_cast<cuuint32_t>(box_rows),
                         static_cast<cuuint32_t>(box_k_tiles)},
                 .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
}

CUtensorMap make_out_map(void* out, std::int64_t m, std::int64_t rows) {
  return encode({.dimensions = 2,
                 .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 .address = out,
                 .sizes = {static_cast<cuuint64_t>(rows), static_cast<cuuint64_t>(m), 1},
                 .strides_bytes = {static_cast<cuuint64_t>(rows) * 2, 0},
                 .box = {64, 8, 1},
                 .swizzle = CU_TENSOR_MAP_SWIZZLE_128B});
}

}  // namespace slimgemm::cuda
