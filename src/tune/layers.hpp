// SPDX-License-Identifier: Apache-2.0
// From what a user names to layers and jobs. Errors of all: invalid_argument naming the value.
#pragma once

#include "tune/tune.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::tune {

/// Token counts where the user names none.
inline const std::vector<std::int64_t> default_tokens{1, 8, 16, 32, 48, 64, 128, 256};

/// "split12", "raw16" or "raw32"; `what` names the value in the error.
Encoding parse_encoding(const std::string& what, const std::string& text);

/// The judge's layer of that name.
const judge::LayerInfo& find_layer(const std::string& option, const std::string& name);

/// A layer of n x k weights, its name its size.
judge::LayerInfo plain_layer(std::int64_t n, std::int64_t k, Encoding encoding);

/// Adds the job of a layer. encoding "": split12, or raw32 for FP32 weights. `tokens` are sorted
/// and told once each; a job of the same size and encoding takes them up.
void add_job(std::vector<Job>& jobs, const judge::LayerInfo& layer, const std::string& encoding,
             const std::vector<std::int64_t>& tokens);

}  // namespace slimgemm::tune
