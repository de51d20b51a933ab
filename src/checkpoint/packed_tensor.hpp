// SPDX-License-Identifier: Apache-2.0
// One tensor's way into its packed bytes and back, a matrix at a time: in memory are one matrix and
// its packed form.
#pragma once

#include <slimgemm/packed.hpp>

#include "checkpoint/meter.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/selection.hpp"
#include "support/aligned_buffer.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

/// Every packed matrix starts at a multiple of this, in its tensor and in the file.
inline constexpr std::uint64_t matrix_alignment = 256;

/// Takes bytes that belong at `offset` of a tensor.
using Sink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

/// What the record of a tensor says about its bytes.
struct TensorRecord {
  Tensor original;
  bool packed = false;
  std::string encoding = {};                ///< packed: of all its matrices, or "mixed"
  std::vector<std::uint64_t> offsets = {};  ///< packed, a stack: where each matrix begins
  std::uint64_t xxh3 = 0;                   ///< of the original bytes
  std::uint64_t begin = 0;                  ///< where it lies in the packed file's data
  std::uint64_t end = 0;
  std::uint64_t matrices = 0;  ///< packed
  std::uint64_t n = 0;
  std::uint64_t k = 0;
  [[nodiscard]] std::string stored_name() const {
    return packed ? packed_name(original.name) : original.name;
  }
};

/// Memory for one matrix, used again for the next: fresh memory costs more time than packing.
class Scratch {
 public:
  /// So many bytes, with undefined contents, until the next call. Errors: out_of_memory.
  std::span<std::byte> get(std::uint64_t size_bytes);

 private:
  std::unique_ptr<AlignedBuffer> buffer_;
};

/// What packing found, for reports.
struct PackedFacts {
  std::uint64_t exceptions = 0;
  std::uint64_t raw16_matrices = 0;
};

/// Packs the tensor and hands the bytes to `sink`, each matrix padded to a multiple of 256 bytes.
/// Fills in encoding, offsets, xxh3, matrices, n, k and the size as [begin, end) from begin 0.
/// Nothing where an FP16 tensor holds a value that BF16 has not: it is to be kept as it is.
/// Errors: io_error, out_of_memory, those of pack().
std::optional<TensorRecord> pack_tensor(const SafetensorsFile& source, const Tensor& tensor,
                                        const Selection& selection, const PackOptions& options,
                                        const Sink& sink, Meter& meter, Scratch& scratch,
                                        PackedFacts& facts);

/// Copies the tensor's bytes to `sink` in pieces and returns their XXH3.
std::uint64_t copy_tensor(const SafetensorsFile& source, const Tensor& tensor, const Sink& sink,
                          Meter& meter);

/// Gives the original bytes of a tensor, in order, to `sink`: unpacks it, or copies it where it is
/// not packed. `stored` is where it lies in `file`.
/// Errors: corrupt_data naming the tensor and what is wrong with its bytes: any that are not
/// exactly what the record and docs/format.md ask for. io_error, out_of_memory, what `sink` throws.
void restore_tensor(const SafetensorsFile& file, const Tensor& stored, const TensorRecord& record,
                    const Sink& sink, Meter& meter, Scratch& scratch);

}  // namespace slimgemm::checkpoint
