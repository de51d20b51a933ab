// SPDX-License-Identifier: Apache-2.0
// docs/report-schema.md documents every field.
#include "judge/report.hpp"
#include "judge/report_cells.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

namespace slimgemm::judge {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity: an error that could not be computed is null.
template <typename T>
Json optional(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json failures_json(const std::vector<Failure>& failures) {
  Json list = Json::array();
  for (const Failure& failure : failures) {
    Json entry = {{"kind", name(failure.kind)}, {"text", failure.to_string()}};
    if (!failure.layer.empty()) {
      entry["layer"] = failure.layer;
      entry["m"] = failure.m;
    }
    if (failure.row >= 0) {
      entry["row"] = failure.row;
      entry["column"] = failure.column;
      entry["got"] = failure.got;
      entry["expected"] = failure.expected;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json side_json(const SideResult& side) {
  Json json = {{"median_us", nullptr},
               {"quartile_low_us", nullptr},
               {"quartile_high_us", nullptr},
               {"replays_timed", 0}};
  if (side.time) {
    json["median_us"] = side.time->median;
    json["quartile_low_us"] = side.time->quartile_low;
    json["quartile_high_us"] = side.time->quartile_high;
    json["replays_timed"] = side.time->count;
  }
  json["replays_checked"] = side.replays_checked;
  json["inputs_checked"] = side.inputs_checked;
  json["bit_identical"] = side.bit_identical;
  json["errors"] = {{"l2", side.errors.l2}, {"row", side.errors.row}, {"probe", side.errors.probe}};
  json["failures"] = failures_json(side.failures);
  return json;
}

Json speedup_json(const std::optional<Interval>& speedup) {
  if (!speedup) return nullptr;
  return {{"median", speedup->value},
          {"low", speedup->low},
          {"high", speedup->high},
          {"coverage", speedup->coverage}};
}

// The first baseline has fields of its own; the others stand in a list.
Json other_baselines(const RunResult& result, const CaseResult& c) {
  Json list = Json::array();
  for (std::size_t i = 1; i < result.baselines.size(); ++i) {
    const BaselineResult* against = c.against(i);
    if (against == nullptr) continue;
    Json entry = {{"name", result.baselines[i].name}};
    entry.update(side_json(against->side));
    entry["speedup"] = speedup_json(against->speedup);
    list.push_back(std::move(entry));
  }
  return list;
}

Json shape_json(const RunResult& result, const CaseResult& c) {
  const BaselineResult* first = c.against(0);
  return {{"layer", c.shape.name},
          {"m", c.shape.m},
          {"n", c.shape.n},
          {"k", c.shape.k},
          {"dtype", slimgemm::name(c.shape.dtype)},
          {"scored", c.shape.scored},
          {"floor_us", c.floor_us},
          {"ceiling_us", optional(c.ceiling_us)},
          {"weight_bytes", c.weight_bytes},
          {"kernel", c.kernel},
          {"replays_queued", c.replays_queued},
          {"limits",
           {{"l2", l2_limit(c.shape.dtype)},
            {"row", row_limit_factor * l2_limit(c.shape.dtype)},
            {"probe", probe_limit}}},
          {"contender", side_json(c.contender)},
          {"baseline", first != nullptr ? side_json(first->side) : Json(nullptr)},
          {"speedup", speedup_json(speedup_of(c, 0))},
          {"other_baselines", other_baselines(result, c)}};
}

Json load_json(const RunResult& result, const LoadResult& load) {
  const LoadBaseline* first = load.against(0);
  Json others = Json::array();
  for (std::size_t i = 1; i < result.baselines.size(); ++i) {
    if (const LoadBaseline* against = load.against(i)) {
      others.push_back({{"name", result.baselines[i].name},
                        {"baseline_us", against->us},
                        {"speedup", against->speedup}});
    }
  }
  return {{"name", load.name},
          {"m", load.m},
          {"ours_us", load.ours_us},
          {"baseline_us", first != nullptr ? Json(first->us) : Json(nullptr)},
          {"floor_us", load.floor_us},
          {"ceiling_us", load.ceiling_us},
          {"speedup", first != nullptr ? Json(first->speedup) : Json(nullptr)},
          {"other_baselines", std::move(others)}};
}

Json participant(const Participant& who) {
  return {{"name", who.name},
          {"prepare_s", optional(who.prepare_s)},
          {"failures", failures_json(who.failures)}};
}

Json layers_json(const LayerTable& layers) {
  Json list = Json::array();
  for (const LayerInfo& layer : layers) {
    list.push_back({{"name", layer.name},
                    {"n", layer.n},
                    {"k", layer.k},
                    {"dtype", slimgemm::name(layer.dtype)},
                    {"role", layer.role}});
  }
  return list;
}

Json shape_list(const std::vector<const CaseResult*>& cases, std::size_t baseline) {
  Json list = Json::array();
  for (const CaseResult* c : cases) {
    list.push_back({{"layer", c->shape.name},
                    {"m", c->shape.m},
                    {"speedup", speedup_json(speedup_of(*c, baseline))}});
  }
  return list;
}

// Null for the fixed problem, which has its score.
Json summary_json(const RunResult& result) {
  if (result.shape_file.empty()) return nullptr;
  Json list = Json::array();
  const auto summaries = summarise_shapes(result);
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const ShapesSummary& summary = summaries[i];
    const bool any = !summary.compared.empty();
    list.push_back({{"baseline", summary.baseline},
                    {"compared", summary.compared.size()},
                    {"geometric_mean", any ? Json(summary.geometric_mean) : Json(nullptr)},
                    {"slower", shape_list(summary.slower, i)},
                    {"large_layer_bytes", large_layer_bytes},
                    {"large_layer_tokens", large_layer_tokens},
                    {"large_layer_speedup", large_layer_speedup},
                    {"large", summary.large.size()},
                    {"large_below", shape_list(summary.large_below, i)}});
  }
  return list;
}

Json facts_json(const RunResult& result, const ReportFacts& facts) {
  Json device = Json::object();
  for (const auto& [key, value] : facts.device) device[key] = value;
  return {{"schema", "slimgemm-judge-1"},
          {"command_line", facts.command_line},
          {"version", facts.version},
          {"commit", facts.commit},
          {"date", facts.date},
          {"seed", facts.seed},
          {"weights", result.weights},
          {"device_kind", facts.is_cuda ? "cuda" : "cpu"},
          {"device", std::move(device)},
          {"empty_replay_us", result.empty_us},
          {"replays_queued", result.replays_queued},
          {"elapsed_s", result.elapsed_s}};
}

}  // namespace

bool reports_available() { return true; }

std::string json_report(const RunResult& result, const ReportFacts& facts) {
  Json json = facts_json(result, facts);
  json["contender"] = participant(result.contender);
  json["baseline"] =
      result.baselines.empty() ? Json(nullptr) : participant(result.baselines.front());
  json["other_baselines"] = Json::array();
  for (std::size_t i = 1; i < result.baselines.size(); ++i) {
    json["other_baselines"].push_back(participant(result.baselines[i]));
  }
  json["shape_file"] = result.shape_file.empty() ? Json(nullptr) : Json(result.shape_file);
  json["layers"] = layers_json(result.layers);
  json["shapes"] = Json::array();
  for (const CaseResult& c : result.cases) json["shapes"].push_back(shape_json(result, c));
  json["shapes_summary"] = summary_json(result);
  json["loads"] = Json::array();
  for (const LoadResult& load : result.loads) json["loads"].push_back(load_json(result, load));
  json["score"] = optional(result.score);
  json["no_score_reason"] = no_score_reason(result);
  json["run_failures"] = failures_json(result.run_failures);
  json["verdict"] = name(verdict(result));
  // Names and messages of outside libraries may hold bytes that are not UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace slimgemm::judge

#else

namespace slimgemm::judge {

bool reports_available() { return false; }

std::string json_report(const RunResult&, const ReportFacts&) {
  throw Error(ErrorCode::unsupported,
              "this build writes no JSON and HTML reports. Install nlohmann-json3-dev, configure "
              "and build again");
}

}  // namespace slimgemm::judge

#endif
