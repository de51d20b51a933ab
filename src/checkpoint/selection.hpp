// SPDX-License-Identifier: Apache-2.0
// Which tensors of a checkpoint are packed. It goes by names, dtypes and shapes alone: no knowledge
// of any architecture.
#pragma once

#include "checkpoint/safetensors_header.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

struct SelectOptions {
  /// Globs (* ? [...]) on tensor names: pack these, too, where dtype and shape allow it.
  std::vector<std::string> include = {};
  /// Globs: keep these as they are. They win over `include`.
  std::vector<std::string> exclude = {};
  /// Pack FP16 matrices whose every value is a BF16 value.
  bool fp16 = false;
  /// Store FP32 matrices in tile order (raw32): no smaller, but ready for the kernels.
  bool fp32 = false;
  /// lm_head.weight repeats the embeddings and no layer reads it: keep it.
  bool tied_embeddings = false;
};

/// What is to become of a tensor.
struct Selection {
  bool packed = false;
  std::string why = {};        ///< where it is not packed: the reason, for people
  std::uint64_t matrices = 0;  ///< of n x k weights, where it is packed
  std::uint64_t n = 0;
  std::uint64_t k = 0;
};

/// Packed are matrices [N, K] named *.weight and stacks [E, N, K] with "expert" in their name, of
/// BF16 (or a dtype that the options ask for), that 12 bits make smaller, but not embeddings.
Selection select(const Tensor& tensor, const SelectOptions& options);

/// True if the name matches the glob.
bool matches(const std::string& glob, const std::string& name);

/// The name that a packed tensor has in the packed file.
inline std::string packed_name(const std::string& name) { return name + "_packed"; }

/// Every packed matrix starts at a multiple of this, in its tensor and in the file.
inline constexpr std::uint64_t matrix_alignment = 256;

/// The next multiple of it.
constexpr std::uint64_t align_matrix(std::uint64_t value) {
  return (value + matrix_alignment - 1) / matrix_alignment * matrix_alignment;
}

/// Bytes that the packed tensor takes without exceptions beyond one group a row tile.
std::uint64_t expected_packed_bytes(const Tensor& tensor, const Selection& selection);

}  // namespace slimgemm::checkpoint
