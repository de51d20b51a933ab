// SPDX-License-Identifier: Apache-2.0
// docs/inspecting.md documents every field.
#include "inspect/inspection_report.hpp"

#include <nlohmann/json.hpp>

namespace slimgemm::inspect {
namespace {

using Json = nlohmann::ordered_json;

// Only exponents that occur: [[exponent, count], ...].
Json histogram_json(const ExponentHistogram& histogram) {
  Json list = Json::array();
  for (std::size_t e = 0; e < histogram.size(); ++e) {
    if (histogram[e] != 0) list.push_back({e, histogram[e]});
  }
  return list;
}

Json exponents_json(const ExponentStatistics& e, double entropy) {
  return {{"weights", e.weights},
          {"packed_bytes", e.packed_bytes},
          {"bits_per_weight", e.stored_bits()},
          {"exponent_entropy_bits", entropy},
          {"ideal_bits_per_weight", other_bits + entropy},
          {"exceptions", e.exceptions},
          {"matrices", e.matrices},
          {"raw16_matrices", e.raw16_matrices},
          {"window_first_exponent_min", e.window_low},
          {"window_first_exponent_max", e.window_high},
          {"exponents", histogram_json(e.histogram)}};
}

Json tensor_json(const MeasuredTensor& measured) {
  const ModelTensor& tensor = *measured.tensor;
  Json json = {{"name", tensor.original.name},
               {"dtype", tensor.original.dtype},
               {"shape", tensor.original.shape},
               {"is_packed", tensor.packed},
               {"is_selected", tensor.selection.packed}};
  json.update(exponents_json(measured.exponents, measured.exponents.entropy()));
  return json;
}

Json fp16_json(const MeasuredFp16& measured) {
  const Fp16Statistics& s = measured.statistics;
  return {{"name", measured.tensor->original.name},
          {"shape", measured.tensor->original.shape},
          {"weights", s.weights},
          {"exponent_entropy_bits", s.exponent_entropy()},
          {"mantissa_entropy_bits", s.mantissa_entropy()},
          {"ideal_bits_per_weight", s.ideal_bits()},
          {"bf16_values", s.bf16_values},
          {"packs_with_fp16", s.packing_tensors == s.tensors},
          {"bytes_with_fp16", s.packed_bytes},
          {"bits_per_weight_with_fp16", s.fp16_option_bits()}};
}

Json token_json(const Inspection& inspection) {
  const TokenCost& token = inspection.token;
  return {{"gpu", inspection.gpu.name},
          {"bandwidth_tb_s", inspection.gpu.bandwidth_tb_s},
          {"weight_bytes_before", token.bytes_before},
          {"weight_bytes_after", token.bytes_after},
          {"us_before", token.us_before},
          {"us_after", token.us_after},
          {"assumptions", token.assumptions}};
}

}  // namespace

std::string inspection_json(const Model& model, const Inspection& inspection) {
  Json tensors = Json::array();
  for (const MeasuredTensor& measured : inspection.measured) {
    tensors.push_back(tensor_json(measured));
  }
  Json kept = Json::array();
  for (const OtherTensor& other : inspection.others) {
    kept.push_back({{"name", other.tensor->original.name},
                    {"dtype", other.tensor->original.dtype},
                    {"shape", other.tensor->original.shape},
                    {"bytes", other.tensor->stored.size_bytes()},
                    {"why", other.why}});
  }
  Json fp16 = Json::array();
  for (const MeasuredFp16& measured : inspection.fp16) fp16.push_back(fp16_json(measured));
  Json layers = Json::array();
  for (const auto& [number, layer] : inspection.layers) {
    layers.push_back({{"layer", number},
                      {"weights", layer.weights},
                      {"bits_per_weight", layer.stored_bits()},
                      {"ideal_bits_per_weight", layer.ideal_bits()}});
  }
  const Json json = {
      {"schema", "slimgemm-inspect-1"},
      {"path", model.path()},
      {"is_packed", model.is_packed()},
      {"files", model.file_count()},
      {"bytes_before", inspection.bytes_before},
      {"bytes_after", inspection.bytes_after},
      {"total", exponents_json(inspection.total, inspection.ideal_bits() - other_bits)},
      {"token", token_json(inspection)},
      {"layers", std::move(layers)},
      {"tensors", std::move(tensors)},
      {"fp16", std::move(fp16)},
      {"kept", std::move(kept)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace slimgemm::inspect
