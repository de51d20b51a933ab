// SPDX-License-Identifier: Apache-2.0
// docs/report-schema.md documents every field.
#include "judge/report.hpp"

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

Json shape_json(const CaseResult& c) {
  Json json = {{"layer", c.shape.name},
               {"m", c.shape.m},
               {"n", c.shape.n},
               {"k", c.shape.k},
               {"dtype", slimgemm::name(c.shape.dtype)},
               {"scored", c.shape.scored},
               {"floor_us", c.floor_us},
               {"ceiling_us", optional(c.ceiling_us)},
               {"weight_bytes", c.weight_bytes},
               {"kernel", c.kernel},
               {"limits",
                {{"l2", l2_limit(c.shape.dtype)},
                 {"row", row_limit_factor * l2_limit(c.shape.dtype)},
                 {"probe", probe_limit}}},
               {"contender", side_json(c.contender)},
               {"baseline", c.baseline ? side_json(*c.baseline) : Json(nullptr)},
               {"speedup", nullptr}};
  if (c.speedup) {
    json["speedup"] = {{"median", c.speedup->value},
                       {"low", c.speedup->low},
                       {"high", c.speedup->high},
                       {"coverage", c.speedup->coverage}};
  }
  return json;
}

Json load_json(const LoadResult& load) {
  return {{"name", load.name},
          {"m", load.m},
          {"ours_us", load.ours_us},
          {"baseline_us", optional(load.baseline_us)},
          {"floor_us", load.floor_us},
          {"ceiling_us", load.ceiling_us},
          {"speedup", optional(load.speedup)}};
}

Json participant(const std::string& name, std::optional<double> prepare_s,
                 const std::vector<Failure>& failures) {
  return {
      {"name", name}, {"prepare_s", optional(prepare_s)}, {"failures", failures_json(failures)}};
}

Json facts_json(const RunResult& result, const ReportFacts& facts) {
  Json device = Json::object();
  for (const auto& [key, value] : facts.device) device[key] = value;
  return {{"schema", "slimgemm-judge-1"}, {"command_line", facts.command_line},
          {"version", facts.version},     {"commit", facts.commit},
          {"date", facts.date},           {"seed", facts.seed},
          {"weights", result.weights},    {"device_kind", facts.is_cuda ? "cuda" : "cpu"},
          {"device", std::move(device)},  {"empty_replay_us", result.empty_us},
          {"elapsed_s", result.elapsed_s}};
}

}  // namespace

bool reports_available() { return true; }

std::string json_report(const RunResult& result, const ReportFacts& facts) {
  Json json = facts_json(result, facts);
  json["contender"] = participant(result.contender, result.prepare_s, result.prepare_failures);
  json["baseline"] = result.baseline.empty()
                         ? Json(nullptr)
                         : participant(result.baseline, result.baseline_prepare_s,
                                       result.baseline_prepare_failures);
  json["shapes"] = Json::array();
  for (const CaseResult& c : result.cases) json["shapes"].push_back(shape_json(c));
  json["loads"] = Json::array();
  for (const LoadResult& load : result.loads) json["loads"].push_back(load_json(load));
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
