// SPDX-License-Identifier: Apache-2.0
// Whether a model fits a GPU's memory, unpacked and packed, and how much is left for the KV cache:
// arithmetic on the headers and config.json; no weight is read.
#pragma once

#include "inspect/kv_cache.hpp"
#include "inspect/model.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::inspect {

struct FitQuery {
  std::string gpu;                       ///< its name, for the report
  std::uint64_t memory_bytes = 0;        ///< of the GPU
  double memory_share = 0.9;             ///< of it, for weights and KV cache; above 0, at most 1
  std::optional<std::uint64_t> context;  ///< tokens of a sequence; none: as the config allows
  std::uint64_t batch = 1;               ///< sequences at the same time
  std::uint64_t kv_bytes = 2;            ///< of an element of the KV cache
};

/// The model in one form on one GPU.
struct Fit {
  std::uint64_t file_bytes = 0;    ///< of the safetensors files, their headers included
  std::uint64_t weight_bytes = 0;  ///< of all tensors, in the GPU's memory
  std::uint64_t usable_bytes = 0;
  [[nodiscard]] bool weights_fit() const { return weight_bytes <= usable_bytes; }
  [[nodiscard]] std::uint64_t left_bytes() const {
    return weights_fit() ? usable_bytes - weight_bytes : 0;
  }
  /// GPUs of this size that hold the weights where these are split evenly.
  [[nodiscard]] std::uint64_t gpus_for_weights() const {
    return (weight_bytes + usable_bytes - 1) / usable_bytes;
  }
  // Of the KV cache; absent where its size is not known or the model keeps none.
  std::optional<bool> kv_fits;                 ///< that of the query, beside the weights
  std::optional<std::uint64_t> sequences_max;  ///< of the query's context
  std::optional<std::uint64_t> context_max;    ///< with the query's batch
};

struct FitResult {
  Fit unpacked;
  Fit packed;
  bool is_packed = false;  ///< the checkpoint is: its packed size is exact
  std::uint64_t packed_tensors = 0;
  std::uint64_t packed_weights = 0;
  std::uint64_t context = 0;         ///< of the query, or by default
  std::optional<KvCache> kv;         ///< none: there is no config.json
  std::uint64_t kv_query_bytes = 0;  ///< of `batch` sequences of `context` tokens
  std::vector<std::string> assumptions;
};

/// Errors: invalid_argument naming the value and its limit.
FitResult fit(const Model& model, const FitQuery& query);

std::string fit_text(const Model& model, const FitQuery& query, const FitResult& result);
/// docs/inspecting.md documents every field.
std::string fit_json(const Model& model, const FitQuery& query, const FitResult& result);

}  // namespace slimgemm::inspect
