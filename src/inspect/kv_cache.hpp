// SPDX-License-Identifier: Apache-2.0
// How much memory the KV cache takes: what attention keeps of every token that it has seen.
#pragma once

#include "inspect/model_config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::inspect {

struct KvCache {
  /// Why the size is not known; then the rest is empty.
  std::string unknown;
  /// The model keeps none (an encoder, such as those that compute embeddings).
  bool keeps_none = false;

  std::uint64_t bytes_per_token = 0;  ///< in layers that keep all tokens
  /// In layers that keep the last window_tokens alone.
  std::uint64_t window_bytes_per_token = 0;
  std::uint64_t window_tokens = 0;
  std::string formula;  ///< "2 (K and V) x 32 layers x 8 heads x 128 values x 2 bytes"
  std::vector<std::string> assumptions;

  /// Bytes of one sequence of so many tokens.
  [[nodiscard]] std::uint64_t bytes_of(std::uint64_t tokens) const;
  /// Tokens of a sequence whose cache fits `bytes`, at most `limit`.
  [[nodiscard]] std::uint64_t tokens_within(std::uint64_t bytes, std::uint64_t limit) const;
};

/// The cache as the config's fields give it, for elements of `element_bytes` (2: BF16). Standard
/// and grouped-query attention keep K and V of every key-value head; DeepSeek's latent attention
/// (MLA) keeps kv_lora_rank + qk_rope_head_dim values for all heads together.
KvCache kv_cache(const ModelConfig& config, std::uint64_t element_bytes);

}  // namespace slimgemm::inspect
