// SPDX-License-Identifier: Apache-2.0
// Shapes to judge from a JSON file (docs/served-shapes.md describes the format):
//
//     {"schema": "slimgemm-shapes-1", "tokens": [1, 4, 8, 16, 32],
//      "layers": [{"name": "qkv", "n": 6144, "k": 4096, "dtype": "bf16",
//                  "role": "query, key and value", "models": ["Llama 3 8B"], "tokens": [1, 64]}]}
#pragma once

#include "judge/cases.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace slimgemm::judge {

inline constexpr std::size_t shape_file_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t shape_layers_max = 1024;
inline constexpr std::size_t shape_name_max = 64;
inline constexpr std::int64_t shape_tokens_max = 8192;
/// Dense weights of one layer: the judge holds them in host and device memory.
inline constexpr std::int64_t shape_weight_bytes_max = std::int64_t{1} << 32;

/// Layers in the order of the file, with a scored case for each of their token counts. `name`
/// stands before every message. Errors: invalid_argument naming the place, the value and what is
/// allowed; unsupported in a build without JSON.
Problem parse_shape_file(std::string_view text, const std::string& name);

/// Reads the file. Errors: those of parse_shape_file, and io_error.
Problem read_shape_file(const std::string& path);

}  // namespace slimgemm::judge
