// SPDX-License-Identifier: Apache-2.0
#include "inspect/fit.hpp"

#include "checkpoint/selection.hpp"
#include "format/device_image.hpp"
#include "inspect/units.hpp"
#include "support/checks.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <limits>

namespace slimgemm::inspect {
namespace {

constexpr std::uint64_t tokens_max = 1ULL << 30;
constexpr std::uint64_t context_default = 4096;  // where nothing says another

void require(bool holds, const std::string& message) {
  if (!holds) throw Error(ErrorCode::invalid_argument, message);
}

void check(const FitQuery& query) {
  require(query.memory_bytes > 0, "the GPU's memory is 0 bytes; it must be more");
  require(
      query.memory_share > 0 && query.memory_share <= 1,
      fmt::format("--memory-share is {:g}; it must be above 0 and at most 1", query.memory_share));
  require(query.batch >= 1 && query.batch <= tokens_max,
          fmt::format("--batch is {}; it must be 1 to {}", query.batch, tokens_max));
  require(
      !query.context || (*query.context >= 1 && *query.context <= tokens_max),
      fmt::format("--context is {}; it must be 1 to {}", query.context.value_or(0), tokens_max));
}

/// Bytes more than in the file that a packed tensor takes on a GPU, where every row tile of 12 bits
/// a weight has room for 32 exceptions and is aligned. A matrix that stays at 16 bits takes none.
std::uint64_t device_padding(const checkpoint::Selection& selection, std::uint64_t file_bytes) {
  const std::uint64_t weights = selection.matrices * selection.n * selection.k;
  if (file_bytes >= 2 * weights) return 0;
  const format::ImageOffsets at(Encoding::split12, selection.n, selection.k);
  return selection.matrices * at.row_tiles *
         (at.row_tile_bytes - at.head - sizeof(format::ExceptionGroup));
}

void add_sizes(const Model& model, FitResult& result) {
  for (const ModelTensor& tensor : model.tensors()) {
    const std::uint64_t original = tensor.original.size_bytes();
    result.unpacked.weight_bytes += original;
    if (!tensor.selection.packed) {
      result.packed.weight_bytes += tensor.stored.size_bytes();
      continue;
    }
    ++result.packed_tensors;
    result.packed_weights += tensor.selection.matrices * tensor.selection.n * tensor.selection.k;
    const std::uint64_t bytes =
        tensor.packed ? tensor.stored.size_bytes()
                      : checkpoint::expected_packed_bytes(tensor.original, tensor.selection);
    result.packed.weight_bytes += bytes + device_padding(tensor.selection, bytes);
  }
  result.unpacked.file_bytes = model.original_file_bytes();
  result.packed.file_bytes = model.packed_file_bytes();
}

void choose_context(const Model& model, const FitQuery& query, FitResult& result) {
  if (query.context) {
    result.context = *query.context;
  } else if (model.config() && model.config()->max_position_embeddings) {
    result.context = static_cast<std::uint64_t>(*model.config()->max_position_embeddings);
    result.assumptions.push_back(fmt::format(
        "sequences of {} tokens, the most that config.json allows (max_position_embeddings); "
        "--context takes another number",
        count_text(result.context)));
  } else {
    result.context = context_default;
    result.assumptions.push_back(fmt::format(
        "sequences of {} tokens; --context takes another number", count_text(result.context)));
  }
}

void add_cache(const FitQuery& query, const KvCache& kv, std::uint64_t context, Fit& fit) {
  const std::uint64_t sequence = kv.bytes_of(context);
  if (sequence == 0) return;
  fit.sequences_max = fit.left_bytes() / sequence;
  fit.kv_fits = fit.weights_fit() && *fit.sequences_max >= query.batch;
  fit.context_max = kv.tokens_within(fit.left_bytes() / query.batch, tokens_max);
}

}  // namespace

FitResult fit(const Model& model, const FitQuery& query) {
  check(query);
  FitResult result;
  result.is_packed = model.is_packed();
  add_sizes(model, result);
  const auto usable =
      static_cast<std::uint64_t>(static_cast<double>(query.memory_bytes) * query.memory_share);
  require(usable > 0, "no byte of the GPU's memory is left: raise --memory-share");
  result.unpacked.usable_bytes = usable;
  result.packed.usable_bytes = usable;
  result.assumptions.push_back(fmt::format(
      "weights and KV cache get {:.0f} % of the memory; the rest is for the CUDA context, "
      "activations and the engine (--memory-share)",
      query.memory_share * 100));
  if (!result.is_packed && result.packed_tensors > 0) {
    result.assumptions.emplace_back(
        "every packed tensor takes 12 bits a weight and what its tiles add; a tensor with too many "
        "far outliers would stay at 16: slimgemm inspect reads the weights and tells exactly");
  }
  if (!model.config()) return result;
  result.kv = kv_cache(*model.config(), query.kv_bytes);
  if (!result.kv->unknown.empty() || result.kv->keeps_none) return result;
  choose_context(model, query, result);
  for (const std::string& assumption : result.kv->assumptions) {
    result.assumptions.push_back(assumption);
  }
  result.kv_query_bytes = checked_multiply(query.batch, result.kv->bytes_of(result.context))
                              .value_or(std::numeric_limits<std::uint64_t>::max());
  add_cache(query, *result.kv, result.context, result.unpacked);
  add_cache(query, *result.kv, result.context, result.packed);
  return result;
}

}  // namespace slimgemm::inspect
