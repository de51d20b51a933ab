// SPDX-License-Identifier: Apache-2.0
// Tensors on their way into packed bytes and back, a matrix at a time. In memory are two matrices,
// one that is worked on and one that is read meanwhile, and pieces of what is made of them.
#pragma once

#include <slimgemm/packed.hpp>

#include "checkpoint/meter.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/part_reader.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/selection.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

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

/// Adds a matrix's encoding to that of its tensor.
inline void note_encoding(std::string& encoding, const char* name) {
  if (encoding.empty()) {
    encoding = name;
  } else if (encoding != name) {
    encoding = "mixed";
  }
}

/// What packing found, for reports.
struct PackedFacts {
  std::uint64_t exceptions = 0;
  std::uint64_t raw16_matrices = 0;
};

/// Packs the matrix, which it may change, and appends it to `record` and to `out`, padded to a
/// multiple of 256 bytes; the record's data begins at byte `place` of the file. False where it is
/// FP16 and holds a value that BF16 has not: the tensor is to be kept as it is. Errors: io_error,
/// out_of_memory, those of pack().
bool pack_matrix(std::span<std::byte> dense, const PackOptions& options, std::uint64_t place,
                 TensorRecord& record, OutputFile& out, PackedFacts& facts);

/// Where the bytes of tensors go that are restored, and what is wrong with them.
class RestoreTarget {
 public:
  virtual ~RestoreTarget() = default;
  /// The original bytes of this tensor follow, in order.
  virtual PieceSink& begin(const TensorRecord& record) = 0;
  /// All of them were given and are right, or `problem` says why not.
  virtual void end(const TensorRecord& record, const std::string& problem) = 0;
};

/// Gives the original bytes of all tensors, in the order of `records`: unpacks them, or copies them
/// where they are not packed. A problem names the tensor and what is wrong with its bytes: any that
/// are not exactly what the record and docs/format.md ask for.
/// Errors: io_error, out_of_memory, what `target` throws.
void restore_tensors(const SafetensorsFile& file, const std::vector<const TensorRecord*>& records,
                     Workspace& workspace, Meter& meter, RestoreTarget& target);

}  // namespace slimgemm::checkpoint
