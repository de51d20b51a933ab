// SPDX-License-Identifier: Apache-2.0
#include "inspect/fit.hpp"
#include "inspect/units.hpp"
#include "report/wrapped.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iterator>

namespace slimgemm::inspect {
namespace {

using report::wrapped;

constexpr const char* row = "  {:<32} {:>16} {:>16}\n";

std::string yes_no(std::optional<bool> value) {
  if (!value) return "unknown";
  return *value ? "yes" : "no";
}

std::string weights_text(const Fit& fit) {
  if (fit.weights_fit()) return "yes";
  return fmt::format("no, on {} GPUs", fit.gpus_for_weights());
}

std::string left_text(const Fit& fit) {
  return fit.weights_fit() ? bytes_text(fit.left_bytes()) : "nothing";
}

std::string cache_text(const FitQuery& query, const FitResult& result) {
  const KvCache& kv = *result.kv;
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(
      out, row,
      fmt::format("KV cache of {} x {}", count_text(query.batch), count_text(result.context)),
      bytes_text(result.kv_query_bytes), bytes_text(result.kv_query_bytes));
  fmt::format_to(out, row, "  fits beside the weights", yes_no(result.unpacked.kv_fits),
                 yes_no(result.packed.kv_fits));
  fmt::format_to(out, row, fmt::format("  most sequences of {}", count_text(result.context)),
                 count_text(result.unpacked.sequences_max.value_or(0)),
                 count_text(result.packed.sequences_max.value_or(0)));
  fmt::format_to(out, row,
                 query.batch == 1
                     ? std::string("  longest sequence, by memory")
                     : fmt::format("  longest of {}, by memory", count_text(query.batch)),
                 count_text(result.unpacked.context_max.value_or(0)),
                 count_text(result.packed.context_max.value_or(0)));
  text += '\n';
  text += wrapped("KV cache of a token: ",
                  fmt::format("{}: {}", kv.formula, bytes_text(kv.bytes_of(1))));
  return text;
}

std::string no_cache_text(const FitResult& result) {
  if (!result.kv) {
    return wrapped("KV cache: ",
                   "unknown, as there is no config.json beside the weights. Give the "
                   "model's directory to have it counted.");
  }
  if (result.kv->keeps_none) {
    return wrapped("KV cache: ", "this model is an encoder and keeps none.");
  }
  return wrapped("KV cache: unknown. ", result.kv->unknown + ".");
}

}  // namespace

std::string fit_text(const Model& model, const FitQuery& query, const FitResult& result) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: {} tensors in {} file{}, {} of them {}packed\n", model.path(),
                 model.tensors().size(), model.file_count(), model.file_count() == 1 ? "" : "s",
                 result.packed_tensors, result.is_packed ? "" : "to be ");
  fmt::format_to(out, "{}: {} of memory, {} for weights and KV cache\n\n", query.gpu,
                 bytes_text(query.memory_bytes), bytes_text(result.packed.usable_bytes));
  fmt::format_to(out, row, "", "unpacked", "packed");
  const std::string about = result.is_packed || result.packed_tensors == 0 ? "" : "about ";
  fmt::format_to(out, row, "files", bytes_text(result.unpacked.file_bytes),
                 about + bytes_text(result.packed.file_bytes));
  fmt::format_to(out, row, "weights", bytes_text(result.unpacked.weight_bytes),
                 about + bytes_text(result.packed.weight_bytes));
  fmt::format_to(out, row, "  fit", weights_text(result.unpacked), weights_text(result.packed));
  fmt::format_to(out, row, "  left for the KV cache", left_text(result.unpacked),
                 left_text(result.packed));
  const bool has_cache = result.kv && result.kv->unknown.empty() && !result.kv->keeps_none;
  text += has_cache ? cache_text(query, result) : "\n" + no_cache_text(result);
  text += "\nAssumed:\n";
  for (const std::string& assumption : result.assumptions) text += wrapped("  - ", assumption);
  return text;
}

namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json form_json(const Fit& fit) {
  return {{"file_bytes", fit.file_bytes},
          {"weight_bytes", fit.weight_bytes},
          {"weights_fit", fit.weights_fit()},
          {"left_bytes", fit.left_bytes()},
          {"gpus_for_weights", fit.gpus_for_weights()},
          {"kv_fits", or_null(fit.kv_fits)},
          {"sequences_max", or_null(fit.sequences_max)},
          {"context_max", or_null(fit.context_max)}};
}

Json kv_json(const FitResult& result) {
  if (!result.kv) return nullptr;
  const KvCache& kv = *result.kv;
  return {{"unknown", kv.unknown},
          {"keeps_none", kv.keeps_none},
          {"bytes_per_token", kv.bytes_per_token},
          {"window_bytes_per_token", kv.window_bytes_per_token},
          {"window_tokens", kv.window_tokens},
          {"formula", kv.formula},
          {"query_bytes", result.kv_query_bytes}};
}

}  // namespace

std::string fit_json(const Model& model, const FitQuery& query, const FitResult& result) {
  const Json json = {{"schema", "slimgemm-fit-1"},
                     {"path", model.path()},
                     {"is_packed", result.is_packed},
                     {"tensors", model.tensors().size()},
                     {"packed_tensors", result.packed_tensors},
                     {"packed_weights", result.packed_weights},
                     {"gpu",
                      {{"name", query.gpu},
                       {"memory_bytes", query.memory_bytes},
                       {"usable_bytes", result.packed.usable_bytes}}},
                     {"context", result.context},
                     {"batch", query.batch},
                     {"unpacked", form_json(result.unpacked)},
                     {"packed", form_json(result.packed)},
                     {"packed_is_exact", result.is_packed},
                     {"kv_cache", kv_json(result)},
                     {"assumptions", result.assumptions}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace slimgemm::inspect
