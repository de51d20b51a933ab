// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/error.hpp>
#include <slimgemm/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace slimgemm {

struct PackOptions {
  /// Threads to pack with; 0 means one for every hardware thread.
  int threads = 0;
  /// A BF16 matrix in which a larger share of the weights falls outside every 16-exponent window
  /// is stored raw (16 bits). 0 stores every matrix with an exception raw. On a GPU exceptions cost
  /// time: 0.05 % of them 0 to 8 % for few tokens and up to a third for 32, 1 % more than 12 bits
  /// save (results/README.md). They cost hardly any memory: where memory is all, take 0.01.
  double max_exception_rate = 0.001;
};

/// An immutable packed N x K weight matrix: one contiguous run of bytes that follows
/// docs/format.md, with its header parsed and checked. Copies share the bytes.
class PackedMatrix {
 public:
  /// Takes over packed bytes, e.g. read from a file. Checks every field, section bound, exception
  /// and (where built with XXH3) the checksums.
  /// Errors: corrupt_data naming the field, its value and its limit.
  static PackedMatrix from_bytes(std::span<const std::byte> bytes);

  [[nodiscard]] std::int64_t n() const noexcept;  ///< rows of W (output features)
  [[nodiscard]] std::int64_t k() const noexcept;  ///< columns of W (input features)
  [[nodiscard]] DType dtype() const noexcept;     ///< of W and of the layer's result
  [[nodiscard]] Encoding encoding() const noexcept;
  /// Weights outside the window (0 for raw encodings).
  [[nodiscard]] std::int64_t exception_count() const noexcept;
  /// First biased exponent of the 16-exponent window (split12 only, even, 0 to 238).
  [[nodiscard]] int window_base() const noexcept;
  /// All bytes, header included, over N * K: bits a weight.
  [[nodiscard]] double bits_per_weight() const noexcept;
  /// The packed bytes, header included.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept;

 private:
  friend struct PackedAccess;
  struct Storage;
  explicit PackedMatrix(std::shared_ptr<const Storage> storage) : storage_(std::move(storage)) {}
  std::shared_ptr<const Storage> storage_;
};

/// Packs a row-major N x K BF16 matrix, given as raw bits, losslessly.
/// Every bit pattern comes back, NaN payloads included.
/// Errors: invalid_argument if n or k is not in [1, 2^31 - 1] or w.size() != n * k; out_of_memory.
PackedMatrix pack(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options = {});

/// Stores a row-major N x K FP32 matrix exactly, in tile order. Errors: as above.
PackedMatrix pack(std::span<const float> w, std::int64_t n, std::int64_t k,
                  const PackOptions& options = {});

/// Packs a row-major N x K BF16 matrix that lies in the memory of a CUDA device, on that device;
/// gives the same bytes as pack() on the host. `stream` is a cudaStream_t; the call synchronises
/// with it. Errors: as pack(); unsupported in a build without CUDA; device_error.
PackedMatrix pack_cuda(const std::uint16_t* w, std::int64_t n, std::int64_t k,
                       const PackOptions& options = {}, void* stream = nullptr);

/// Writes the original row-major matrix, bit for bit. `out` holds n * k elements.
/// Errors: invalid_argument if the size or the dtype does not match the packed matrix.
void unpack(const PackedMatrix& packed, std::span<std::uint16_t> out, int threads = 0);
void unpack(const PackedMatrix& packed, std::span<float> out, int threads = 0);

}  // namespace slimgemm
