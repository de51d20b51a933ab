// SPDX-License-Identifier: Apache-2.0
// pack_cuda and the device images: the passes of the host packer (src/codec/pack.cpp), on the
// device that holds the weights. Window, encoding, section bounds and checksums come from the host
// packer's functions.
#include <slimgemm/device_image.hpp>

#include "codec/packed_access.hpp"
#include "codec/sections.hpp"
#include "codec/window.hpp"
#include "cuda/check.hpp"
#include "cuda/device_memory.hpp"
#include "cuda/pack_kernels.cuh"
#include "format/device_image.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace slimgemm {
namespace cuda::pack {
namespace {

constexpr const char* way_out = "copy it there, or use pack()";

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
    count_extra(choice.window_base, device_extra, extra.data());
    auto* extra_begin = reinterpret_cast<std::uint32_t*>(extra.data());
    const std::uint64_t group_count = accumulate_extra_groups(extra_begin, m_.row_tiles);
    if (group_count > max_group_count) return raw16(choice.has_nonfinite);
    check(cudaMemcpyAsync(device_extra.as<void>(), extra.data(), extra.size(),
                          cudaMemcpyHostToDevice, stream_),
          "copy of extra_begin to the device");
    return split12(choice, extra, device_extra.as<std::uint32_t>(), group_count);
  }

  [[nodiscard]] ImageLayout plan_image(const PackOptions& options, std::int64_t spare) const {
    const Bf16Encoding choice = choose_encoding(histogram(), options.max_exception_rate);
    ImageLayout layout{.n = static_cast<std::int64_t>(m_.n),
                       .k = static_cast<std::int64_t>(m_.k),
                       .encoding = choice.encoding,
                       .window_base = choice.window_base,
                       .has_nonfinite = choice.has_nonfinite};
    if (choice.encoding == Encoding::raw16) return layout;
    const std::uint64_t groups = more_begins(choice.window_base).back();
    if (groups <= static_cast<std::uint64_t>(max_dimension / 2)) {
      layout.more_groups = format::groups_with_spare(static_cast<std::int64_t>(groups), spare);
      return layout;
    }
    return {.n = layout.n, .k = layout.k, .has_nonfinite = choice.has_nonfinite};
  }

  void write_image(const ImageLayout& layout, unsigned char* image) const {
    if (layout.encoding == Encoding::raw16) {
      write_raw16_tiles<<<tile_ctas(), threads_per_cta, 0, stream_>>>(
          m_, reinterpret_cast<uint4*>(image));
      check_launch("write_raw16_tiles");
      check(cudaStreamSynchronize(stream_), "waiting for the image");
    } else {
      write_split12_image(layout, image);
    }
  }

 private:
  // Of every row tile, where its groups after the head begin; one value more: their number. 64
  // bits: sums that are too large are seen.
  [[nodiscard]] std::vector<std::uint64_t> more_begins(int window_base) const {
    std::vector<std::uint32_t> extra(m_.row_tiles + 1);
    const DeviceMemory device(extra.size() * sizeof(std::uint32_t));
    count_extra(window_base, device, extra.data());
    std::vector<std::uint64_t> begins(extra.size(), 0);
    for (std::size_t r = 0; r + 1 < begins.size(); ++r) {
      begins[r + 1] = begins[r] + format::groups_after_head(extra[r + 1]);
    }
    return begins;
  }

  void write_split12_image(const ImageLayout& layout, unsigned char* image) const {
    const std::vector<std::uint64_t> counted = more_begins(layout.window_base);
    if (counted.back() > static_cast<std::uint64_t>(layout.more_groups)) {
      throw Error(ErrorCode::invalid_argument,
                  "the weights have " + std::to_string(counted.back()) +
                      " exception groups that no head has room for, with the image's window " +
                      std::to_string(layout.window_base) + ": the image has room for " +
                      std::to_string(layout.more_groups) + ". Plan a new image for them");
    }
    const std::vector<std::uint32_t> begins(counted.begin(), counted.end());
    const DeviceMemory device_begins(begins.size() * sizeof(std::uint32_t));
    check(cudaMemcpyAsync(device_begins.as<void>(), begins.data(), device_begins.size_bytes(),
                          cudaMemcpyHostToDevice, stream_),
          "copy of more_begin to the device");
    const format::ImageOffsets at(layout.encoding, m_.n, m_.k);
    write_split12_tiles<<<tile_ctas(), threads_per_cta, 0, stream_>>>(m_, layout.window_base, image,
                                                                      at.row_tile_bytes);
    check_launch("write_split12_tiles");
    // Padding and the rest of the heads: no kernel reads them, but equal weights give equal images.
    check(cudaMemset2DAsync(image + at.head, at.row_tile_bytes, 0, at.row_tile_bytes - at.head,
                            m_.row_tiles, stream_),
          "clearing the heads");
    const ImageGroups groups{image + at.head, at.row_tile_bytes,
                             reinterpret_cast<unsigned long long*>(image + at.more),
                             device_begins.as<std::uint32_t>()};
    write_groups<<<ctas(m_.row_tiles), threads_per_cta, 0, stream_>>>(m_, layout.window_base,
                                                                      groups);
    check_launch("write_groups");
    finish_heads<<<ctas(m_.row_tiles / threads_per_cta), threads_per_cta, 0, stream_>>>(
        groups, m_.row_tiles);
    check_launch("finish_heads");
    const std::uint64_t used = at.more + counted.back() * sizeof(format::ExceptionGroup);
    if (used < layout.size_bytes()) {
      check(cudaMemsetAsync(image + used, 0, layout.size_bytes() - used, stream_),
            "clearing the spare groups");
    }
    // more_begin is freed when this returns.
    check(cudaStreamSynchronize(stream_), "waiting for the image");
  }

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

  // host: room for row_tiles + 1 values of 32 bits, as in the device's memory.
  void count_extra(int window_base, const DeviceMemory& device, void* host) const {
    check(cudaMemsetAsync(device.as<void>(), 0, sizeof(std::uint32_t), stream_),
          "clearing extra_begin[0]");
    count_extra_groups<<<ctas(m_.row_tiles), threads_per_cta, 0, stream_>>>(
        m_, window_base, device.as<std::uint32_t>());
    check_launch("count_extra_groups");
    download(host, device.as<void>(), device.size_bytes(), "extra_begin");
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
    write_split12_tiles<<<tile_ctas(), threads_per_cta, 0, stream_>>>(
        m_, choice.window_base, tiles.as<unsigned char>(), m_.k_tiles * format::split12_tile_bytes);
    check_launch("write_split12_tiles");
    write_groups<<<ctas(m_.row_tiles), threads_per_cta, 0, stream_>>>(
        m_, choice.window_base,
        PackedGroups{groups.as<unsigned long long>(), device_extra, m_.row_tiles});
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

namespace {

cuda::pack::Matrix matrix_of(const std::uint16_t* w, std::int64_t n, std::int64_t k) {
  const auto rows = static_cast<std::uint64_t>(n);
  const auto columns = static_cast<std::uint64_t>(k);
  return {w, rows, columns, format::tiles_along(rows, format::tile_rows),
          format::tiles_along(columns, format::tile_k)};
}

}  // namespace

PackedMatrix pack_cuda(const std::uint16_t* w, std::int64_t n, std::int64_t k,
                       const PackOptions& options, void* stream) {
  check_pack_arguments(n, k, options);
  const int device = cuda::device_of(w, "w", cuda::pack::way_out);
  const cuda::DeviceGuard guard(device);
  return cuda::pack::Packer(matrix_of(w, n, k), device, static_cast<cudaStream_t>(stream))
      .run(options);
}

ImageLayout plan_image_cuda(const std::uint16_t* w, std::int64_t n, std::int64_t k,
                            const PackOptions& options, std::int64_t spare_groups, void* stream) {
  check_pack_arguments(n, k, options);
  check_spare_groups(spare_groups);
  const int device = cuda::device_of(w, "w", cuda::pack::way_out);
  const cuda::DeviceGuard guard(device);
  return cuda::pack::Packer(matrix_of(w, n, k), device, static_cast<cudaStream_t>(stream))
      .plan_image(options, spare_groups);
}

void pack_image_cuda(const std::uint16_t* w, const ImageLayout& layout, void* image, void* stream) {
  static_cast<void>(layout.size_bytes());  // refuses a layout that is none
  if (layout.encoding == Encoding::raw32) {
    throw Error(ErrorCode::unsupported,
                "the image's layout is raw32: FP32 weights are packed with pack() and "
                "write_image(), and copied to the device");
  }
  const int device = cuda::device_of(w, "w", cuda::pack::way_out);
  const int image_device = cuda::device_of(image, "image", cuda::pack::way_out);
  if (device != image_device) {
    throw Error(ErrorCode::invalid_argument, "w is on CUDA device " + std::to_string(device) +
                                                 " and image on " + std::to_string(image_device) +
                                                 ": they must be on the same");
  }
  const cuda::DeviceGuard guard(device);
  cuda::pack::Packer(matrix_of(w, layout.n, layout.k), device, static_cast<cudaStream_t>(stream))
      .write_image(layout, static_cast<unsigned char*>(image));
}

}  // namespace slimgemm
