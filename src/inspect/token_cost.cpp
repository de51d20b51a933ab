// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace slimgemm::inspect {
namespace {

constexpr double element_bits_max = 64;

// Which share of the experts one token is multiplied with.
double expert_share(const Model& model, TokenCost& cost) {
  const auto& config = model.config();
  if (config && config->num_experts && config->num_experts_per_tok) {
    cost.assumptions.push_back(
        fmt::format("of every layer's {} experts a token reads {} (config.json); shared experts "
                    "are read always",
                    *config->num_experts, *config->num_experts_per_tok));
    return std::min(1.0, static_cast<double>(*config->num_experts_per_tok) /
                             static_cast<double>(*config->num_experts));
  }
  cost.assumptions.emplace_back(
      "config.json does not say how many experts a token needs: all are counted");
  return 1;
}

bool is_embedding_table(const ModelTensor& tensor) {
  const std::string& name = tensor.original.name;
  return tensor.original.shape.size() == 2 &&
         (name.ends_with("embed_tokens.weight") || name.ends_with("wte.weight") ||
          name.ends_with("word_embeddings.weight"));
}

class Counter {
 public:
  Counter(const lab::Gpu& gpu, TokenCost& cost) : gpu_(gpu), cost_(cost) {}

  /// `matrices` of n x k weights that take these bytes in all; a token needs `share` of them.
  void add(std::uint64_t matrices, std::uint64_t n, std::uint64_t k, double bytes_before,
           double bytes_after, double share) {
    const double weights =
        static_cast<double>(matrices) * static_cast<double>(n) * static_cast<double>(k);
    if (8 * bytes_before / weights > element_bits_max) return;  // of a dtype that nobody knows
    cost_.layers += matrices;
    cost_.bytes_before += bytes_before * share;
    cost_.bytes_after += bytes_after * share;
    cost_.us_before += floor_us(matrices, n, k, bytes_before) * share;
    cost_.us_after += floor_us(matrices, n, k, bytes_after) * share;
  }

 private:
  [[nodiscard]] double floor_us(std::uint64_t matrices, std::uint64_t n, std::uint64_t k,
                                double bytes) const {
    lab::Matmul matmul{static_cast<std::int64_t>(n), static_cast<std::int64_t>(k), 1};
    const auto weights =
        static_cast<double>(matrices) * static_cast<double>(n) * static_cast<double>(k);
    matmul.weight_bits = 8 * bytes / weights;
    return lab::roofline(matmul, gpu_).floor_us() * static_cast<double>(matrices);
  }

  const lab::Gpu& gpu_;
  TokenCost& cost_;
};

}  // namespace

TokenCost token_cost(const Model& model, const std::vector<MeasuredTensor>& measured,
                     const lab::Gpu& gpu, const ModelTensor* only) {
  TokenCost cost;
  Counter counter(gpu, cost);
  std::unordered_map<const ModelTensor*, const ExponentStatistics*> known;
  for (const MeasuredTensor& m : measured) known[m.tensor] = &m.exponents;
  double share = -1;
  bool has_output_layer = false;
  const ModelTensor* table = nullptr;
  for (const ModelTensor& tensor : model.tensors()) {
    if (only != nullptr && &tensor != only) continue;
    if (is_embedding_table(tensor)) table = &tensor;
    if (!tensor.is_linear || tensor.original.size_bytes() == 0) continue;
    if (tensor.original.name.find("lm_head") != std::string::npos) has_output_layer = true;
    if (tensor.is_expert && only == nullptr && share < 0) share = expert_share(model, cost);
    const auto& shape = tensor.original.shape;
    const std::uint64_t k = shape.back();
    const std::uint64_t n = shape[shape.size() - 2];
    const std::uint64_t matrices = shape.size() == 3 ? shape[0] : 1;
    const auto before = static_cast<double>(tensor.original.size_bytes());
    const auto found = known.find(&tensor);
    const auto after = found != known.end() ? static_cast<double>(found->second->packed_bytes)
                                            : static_cast<double>(tensor.stored.size_bytes());
    counter.add(matrices, n, k, before, after, tensor.is_expert && only == nullptr ? share : 1);
  }
  if (only == nullptr && !has_output_layer && table != nullptr && model.config() &&
      model.config()->tie_word_embeddings) {
    const auto bytes = static_cast<double>(table->original.size_bytes());
    counter.add(1, table->original.shape[0], table->original.shape[1], bytes, bytes, 1);
    cost.assumptions.push_back(
        fmt::format("the output layer multiplies with {}, which stays as it is (config.json: "
                    "tie_word_embeddings)",
                    checkpoint::printable(table->original.name)));
  }
  cost.assumptions.emplace_back(
      "only weights of linear layers are counted: not the KV cache, norms, or the time between "
      "kernels");
  return cost;
}

}  // namespace slimgemm::inspect
