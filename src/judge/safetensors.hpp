// SPDX-License-Identifier: Apache-2.0
// The five weight matrices from a safetensors file.
#pragma once

#include "judge/inputs.hpp"

#include <string>

namespace slimgemm::judge {

/// Reads the tensors named as the layers of `table` are, or so with the suffix ".weight". BF16
/// layers must be BF16 in the file; an FP32 layer may be F32, or BF16, which is widened exactly.
/// Other tensors are ignored. Errors: io_error; corrupt_data naming the rule of the format that the
/// file breaks; invalid_argument for a missing tensor, another dtype or shape, or a NaN or Inf;
/// unsupported in a build without JSON.
Weights load_safetensors(const std::string& path, const LayerTable& table);

}  // namespace slimgemm::judge
