// SPDX-License-Identifier: Apache-2.0
#include "lab/score.hpp"

#include "lab/roofline.hpp"

#include <cmath>

namespace slimgemm::lab {
namespace {

Floors floors_of(judge::Layer layer, std::int64_t m, double weight_bits) {
  Matmul matmul = layer_matmul(layer, m);
  if (judge::info(layer).dtype == DType::bf16) {
    matmul.weight_bits = weight_bits;
  }
  return {judge::floor_us({layer, m, true}), roofline(matmul, named_gpu("h200")).floor_us()};
}

LoadScore score_load(const judge::Load& load, const LoadTimes& times, double weight_bits) {
  LoadScore result;
  result.load = load;
  result.whole = times.sum || times.shapes_given() == judge::layer_count;
  for (const judge::LayerInfo& info : judge::layers()) {
    const Floors floors = floors_of(info.layer, load.m, weight_bits);
    const std::optional<TimePair>& shape = times.shapes.at(static_cast<std::size_t>(info.layer));
    if (shape) {
      result.shapes.push_back({info.layer, *shape, floors});
      result.time += *shape;
    }
    if (shape || times.sum) {
      result.floors += floors;
    }
  }
  result.time = times.sum.value_or(result.time);
  return result;
}

}  // namespace

Score compute_score(const TimesTable& table, double weight_bits) {
  Score result;
  double log_sum = 0;
  for (std::size_t i = 0; i < load_count; ++i) {
    const LoadTimes& times = table.loads.at(i);
    if (times.empty()) {
      continue;
    }
    result.loads.push_back(score_load(judge::loads().at(i), times, weight_bits));
    if (result.loads.back().whole) {
      ++result.whole_loads;
      log_sum += std::log(result.loads.back().time.speedup());
    }
  }
  if (result.whole_loads > 0) {
    result.score = std::exp(log_sum / result.whole_loads);
  }
  return result;
}

}  // namespace slimgemm::lab
