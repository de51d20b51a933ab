// SPDX-License-Identifier: Apache-2.0
// Reads the weights of a model and says what packing them brings.
#pragma once

#include "inspect/exponents.hpp"
#include "inspect/fp16_statistics.hpp"
#include "inspect/model.hpp"
#include "lab/roofline.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::inspect {

struct InspectOptions {
  std::string tensor;  ///< this one alone, whatever its name; empty: all that pack would pack
  lab::Gpu gpu;        ///< for the cost of a token
  /// Told now and then what is read, and which share of the bytes is done.
  std::function<void(const std::string& tensor, double done)> progress;
};

/// A tensor whose exponents were counted.
struct MeasuredTensor {
  const ModelTensor* tensor = nullptr;
  ExponentStatistics exponents;
};

/// A tensor that was not, and why.
struct OtherTensor {
  const ModelTensor* tensor = nullptr;
  std::string why;
};

/// An FP16 tensor of a linear layer whose weights were counted; it is also among the others.
struct MeasuredFp16 {
  const ModelTensor* tensor = nullptr;
  Fp16Statistics statistics;
};

/// What the roofline says one token costs: no kernel can read the weights faster.
struct TokenCost {
  std::uint64_t layers = 0;  ///< matrices that a token is multiplied with, all experts counted
  double bytes_before = 0;   ///< weight bytes that one token reads
  double bytes_after = 0;
  double us_before = 0;  ///< sum of the layers' rooflines at m = 1
  double us_after = 0;
  std::vector<std::string> assumptions;
};

/// A group of tensors: those of one number in their names, say.
struct LayerSum {
  std::uint64_t weights = 0;
  std::uint64_t packed_bytes = 0;
  double entropy_weights = 0;  ///< sum over tensors of entropy x weights
  [[nodiscard]] double stored_bits() const;
  [[nodiscard]] double ideal_bits() const;
};

struct Inspection {
  std::vector<MeasuredTensor> measured;
  std::vector<OtherTensor> others;
  std::vector<MeasuredFp16> fp16;
  ExponentStatistics total;    ///< of all measured
  double entropy_weights = 0;  ///< sum over tensors of entropy x weights
  std::map<std::int64_t, LayerSum> layers;
  std::uint64_t bytes_before = 0;  ///< of all tensors, as they were before packing
  std::uint64_t bytes_after = 0;   ///< of all tensors, packed where that is measured
  TokenCost token;
  lab::Gpu gpu;  ///< that the cost of a token is for

  /// Mean over the weights of what their tensor's exponents need: 8 bits and their entropy.
  [[nodiscard]] double ideal_bits() const;
};

/// Reads matrix by matrix: in memory are one matrix and, where the model is packed, its packed
/// form. Every count is exact. Errors: invalid_argument for a tensor that is not there or whose
/// dtype is neither BF16 nor FP16; io_error; corrupt_data naming the tensor; out_of_memory.
Inspection inspect(const Model& model, const InspectOptions& options);

/// The cost of a token, from what is measured; of the tensor `only` alone unless it is null
/// (token_cost.cpp).
TokenCost token_cost(const Model& model, const std::vector<MeasuredTensor>& measured,
                     const lab::Gpu& gpu, const ModelTensor* only);

}  // namespace slimgemm::inspect
