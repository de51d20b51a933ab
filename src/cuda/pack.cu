// SPDX-License-Identifier: Apache-2.0
// pack_cuda: the passes of the host packer (src/codec/pack.cpp), on the device that holds the
// weights. Window, encoding, section bounds and checksums come from the host packer's functions.
#include "codec/packed_access.hpp"
#include "codec/sections.hpp"
#include "codec/window.hpp"
#include "cuda/check.hpp"
#include "cuda/device_memory.hpp"
#include "cuda/pack_kernels.cuh"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace slimgemm {
namespace cuda::pack {
namespace {

// The device that owns the weights.
int device_of(const std::uint16_t* w) {
  cudaPointerAttributes attributes{};
  const cudaError_t status = cudaPointerGetAttributes(&attributes, w);
  if (status != cudaErrorInvalidValue) check(status, "cudaPointerGetAttributes of w");
  const bool on_device = status == cudaSuccess && (attributes.type == cudaMemoryTypeDevice ||
                                                   attributes.type == cudaMemoryTypeManaged);
  if (!on_device) {
    static_cast<void>(cudaGetLastError());
    throw Error(ErrorCode::invalid_argument,
                "w is not memory of a CUDA device: copy it there, or use pack()");
  }
  return attributes.device;
}

class Packer {
 public:
  Packer(const Matrix& matrix, int device, cudaStream_t stream) : m_(matrix), stream_(stream) {
    check(cudaDeviceGetAttribute(&sms_, cudaDevAttrMultiProcessorCount, device),
          "cudaDeviceGetAttribute of the SM count");
  }

  [[nodiscard]] PackedMatrix run(const PackOptions& options) const {
    const Bf16Encoding choice = choose_encoding(histogram(), options.max_exception_rate);
    if (choice.encoding == Encoding::raw16) return raw16(choice.has_nonfinite);
    AlignedBuffer extra((m_.row_tiles + 1) * sizeof(std::uint32_t));
    DeviceMemory device_extra(extra.size());
    count_extra(choice.window_base, device_extra, extra);
    auto* extra_begin = reinterpret_cast<std::uint32_t*>(extra.data());
    const std::uint64_t group_count = accumulate_extra_groups(extra_begin, m_.row_tiles);
    if (group_count > max_group_count) return raw16(choice.has_nonfinite);
    check(cudaMemcpyAsync(device_extra.as<void>(), extra.data(), extra.size(),
                          cudaMemcpyHostToDevice, stream_),
          "copy of extra_begin to the device");
    return split12(choice, extra, device_extra.as<std::uint32_t>(), group_count);
  }

 private:
  // CTAs for so many independent pieces: enough to fill the device, the rest by grid strides.
  [[nodiscard]] unsigned int ctas(std::uint64_t pieces) const {
    constexpr std::uint64_t ctas_per_sm = 8;
    const std::uint64_t most = ctas_per_sm * static_cast<std::uint64_t>(sms_);
    return static_cast<unsigned int>(std::clamp<std::uint64_t>(pieces, 1, most));
  }
  [[nodiscard]] std::uint64_t tile_count() const { return m_.row_tiles * m_.k_tiles; }
  [[nodiscard]] unsigned int tile_ctas() const {
    return ctas((tile_count() + warps_per_cta - 1) / warps_per_cta);
  }

  // Waits for the copy: pageable memory may be read as soon as this returns.
  void download(void* to, const void* from, std::size_t bytes, const char* what) const {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_),
          std::string("copy of ") + what + " to the host");
    check(cudaStreamSynchronize(stream_), std::string("waiting for ") + what);
  }

  [[nodiscard]] ExponentHistogram histogram() const {
    static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
    ExponentHistogram counts{};
    const DeviceMemory device(sizeof(counts));
    check(cudaMemsetAsync(device.as<void>(), 0, sizeof(counts), stream_),
          "clearing the exponent histogram");
    constexpr std::uint64_t weights_per_cta = 16 * threads_per_cta;
    count_exponents<<<ctas(m_.n * m_.k / weights_per_cta), threads_per_cta, 0, stream_>>>(
        m_, device.as<unsigned long long>());
    check_launch("count_exponents");
    download(counts.data(), device.as<void>(), sizeof(counts), "the exponent histogram");
    return counts;
  }

  void count_extra(int window_base, const DeviceMemory& device, AlignedBuffer& host) const {
    check(cudaMemsetAsync(device.as<void>(), 0, sizeof(std::uint32_t), stream_),
          "clearing extra_begin[0]");
    count_extra_groups<<<ctas(m_.row_tiles), threads_per_cta, 0, stream_>>>(
        m_, window_base, device.as<std::uint32_t>());
    check_launch("count_extra_groups");
    download(host.data(), device.as<void>(), host.size(), "extra_begin");
  }

  [[nodiscard]] PackedMatrix raw16(bool has_nonfinite) const {
    const format::Header header = make_header({.encoding = Encoding::raw16, .n = m_.n, .k = m_.k});
    const DeviceMemory tiles(header.tiles_bytes);
    write_raw16_tiles<<<tile_ctas(), threads_per_cta, 0, stream_>>>(m_, tiles.as<uint4>());
    check_launch("write_raw16_tiles");
    AlignedBuffer buffer(header.total_bytes);
    download(buffer.data() + header.tiles_offset, tiles.as<void>(), header.tiles_bytes, "tiles");
    finish(buffer, header, has_nonfinite);
    return PackedAccess::adopt(std::move(buffer));
  }

  [[nodiscard]] PackedMatrix split12(const Bf16Encoding& choice, const AlignedBuffer& extra,
                                     const std::uint32_t* device_extra,
                                     std::uint64_t group_count) const {
    const format::Header header = make_header({.encoding = Encoding::split12,
                                               .n = m_.n,
                                               .k = m_.k,
                                               .window_base = choice.window_base,
                                               .exception_count = choice.exception_count,
                                               .group_count = group_count});
    const std::uint64_t groups_bytes = group_count * sizeof(format::ExceptionGroup);
    const DeviceMemory tiles(header.tiles_bytes);
    const DeviceMemory groups(groups_bytes);
    write_split12_tiles<<<tile_ctas(), threads_per_cta, 0, stream_>>>(m_, choice.window_base,
                                                                      tiles.as<uint4>());
    check_launch("write_split12_tiles");
    write_groups<<<ctas(m_.row_tiles), threads_per_cta, 0, stream_>>>(
        m_, choice.window_base, device_extra, groups.as<unsigned long long>());
    check_launch("write_groups");
    AlignedBuffer buffer(header.total_bytes);
    download(buffer.data() + header.tiles_offset, tiles.as<void>(), header.tiles_bytes, "tiles");
    download(buffer.data() + header.groups_offset, groups.as<void>(), groups_bytes, "groups");
    std::memcpy(buffer.data() + header.extra_offset, extra.data(), extra.size());
    finish(buffer, header, choice.has_nonfinite);
    return PackedAccess::adopt(std::move(buffer));
  }

  Matrix m_;
  cudaStream_t stream_;
  int sms_ = 1;
};

}  // namespace
}  // namespace cuda::pack

PackedMatrix pack_cuda(const std::uint16_t* w, std::int64_t n, std::int64_t k,
                       const PackOptions& options, void* stream) {
  check_pack_arguments(n, k, options);
  const int device = cuda::pack::device_of(w);
  const cuda::DeviceGuard guard(device);
  const auto rows = static_cast<std::uint64_t>(n);
  const auto columns = static_cast<std::uint64_t>(k);
  const cuda::pack::Matrix matrix{w, rows, columns, format::tiles_along(rows, format::tile_rows),
                                  format::tiles_along(columns, format::tile_k)};
  return cuda::pack::Packer(matrix, device, static_cast<cudaStream_t>(stream)).run(options);
}

}  // namespace slimgemm
