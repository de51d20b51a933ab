// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/linear.hpp>
#include <slimgemm/packed.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace slimgemm {

/// How a packed matrix lies in the memory of a GPU, for callers that own that memory: an engine
/// with an allocator of its own, or one that writes new weights behind pointers that captured
/// graphs hold. The image is what Linear uploads by itself otherwise; it is no file format, and
/// only the layout that it was written with reads it.
struct ImageLayout {
  std::int64_t n = 0;  ///< rows of W (output features)
  std::int64_t k = 0;  ///< columns of W (input features)
  Encoding encoding = Encoding::raw16;
  int window_base = 0;           ///< split12, as PackedMatrix::window_base()
  bool has_nonfinite = false;    ///< some weight is Inf or NaN
  std::int64_t more_groups = 0;  ///< split12: room for groups of 16 exceptions beyond 32 a row tile

  /// Bytes of the image. Errors: invalid_argument naming the field that is out of its range.
  [[nodiscard]] std::uint64_t size_bytes() const;
};

inline constexpr std::size_t image_alignment = 256;

/// The layout of a packed matrix. spare_groups: at least so much more room than it needs, for
/// weights that are written into the image later; the sum is rounded up to a multiple of twice as
/// many, so that matrices of one shape mostly have images of one size. Errors: invalid_argument.
ImageLayout image_layout(const PackedMatrix& packed, std::int64_t spare_groups = 0);

/// Spare groups that cost about 0.13 % of the image's bytes when rounded up: they let weights which
/// have changed a little be written into the image.
std::int64_t default_spare_groups(std::int64_t n, std::int64_t k);

/// Writes the image of a packed matrix in host memory, to be copied to the device.
/// Errors: invalid_argument if shape, encoding, window or size do not match the layout, or if there
/// are more exceptions than it has room for.
void write_image(const PackedMatrix& packed, const ImageLayout& layout, std::span<std::byte> image);

/// The packed matrix of an image that lies in host memory. Errors: corrupt_data.
PackedMatrix read_image(const ImageLayout& layout, std::span<const std::byte> image);

/// The layout that pack_cuda(w) would give: counts on the device, writes nothing. Synchronises with
/// `stream`. Errors: as pack_cuda().
ImageLayout plan_image_cuda(const std::uint16_t* w, std::int64_t n, std::int64_t k,
                            const PackOptions& options = {}, std::int64_t spare_groups = 0,
                            void* stream = nullptr);

/// Packs row-major N x K BF16 weights from device memory into an image on the same device.
/// Synchronises with `stream`; nothing is written if the call fails for the weights' sake.
/// Errors: invalid_argument if the weights need more exception groups than the layout has room
/// for; unsupported for raw32 and in a build without CUDA; device_error.
void pack_image_cuda(const std::uint16_t* w, const ImageLayout& layout, void* image,
                     void* stream = nullptr);

/// Decodes an image on the device: rows [row_begin, row_end) of the original matrix, row-major, bit
/// for bit. `image` and `out` ((row_end - row_begin) x K elements of the weights' dtype) are on the
/// same device. row_begin must be a multiple of 16. Allocates nothing and does not wait: can be
/// captured. Errors: invalid_argument; unsupported in a build without CUDA; device_error.
void unpack_image_cuda(const ImageLayout& layout, const void* image, void* out,
                       std::int64_t row_begin, std::int64_t row_end, void* stream = nullptr);

/// A layer over an image that the caller owns: nothing is copied, and the image must outlive the
/// layer. options.device must be Device::cuda, and the image on options.cuda_device.
/// Errors: as Linear's constructor; invalid_argument if `image` is not aligned to 256 bytes.
Linear linear_over_image(const ImageLayout& layout, const void* image,
                         const LinearOptions& options);

}  // namespace slimgemm
