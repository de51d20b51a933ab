// SPDX-License-Identifier: Apache-2.0
#include "chain.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

namespace slimgemm::bench {
namespace {

/// Which layer feeds which: "fixed x -> o -> pooler; fixed x -> router".
std::string flow_text(const ChainResult& result) {
  std::string text;
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const bool fed = i > 0 && result.steps[i].x_from != Step::fixed_x;
    if (!fed) text += i > 0 ? "; fixed x" : "fixed x";
    text += " -> " + result.steps[i].shape.name;
  }
  const Step& first = result.steps.front();
  if (first.x_from != Step::fixed_x) text += " -> " + first.shape.name + " of the next pass";
  return text;
}

/// One line of the table: us of a whole chain, of a pass, of a layer, and the ratio.
std::string line(const ChainResult& result, const std::string& who, double chain_us, int passes,
                 const std::string& ratio) {
  const double pass_us = chain_us / passes;
  return fmt::format("{:>5}  {:<32}  {:>10.2f}  {:>9.2f}  {:>9.2f}  {}\n", result.m, who, chain_us,
                     pass_us, pass_us / static_cast<double>(result.steps.size()), ratio);
}

std::string ratio_text(const judge::Interval& ratio) {
  return fmt::format("{:.3f} [{:.3f}, {:.3f}]", ratio.value, ratio.low, ratio.high);
}

std::string result_text(const ChainReport& report, const ChainResult& result) {
  const int passes = report.passes;
  const double single_us = passes * result.single_sum_us();
  std::string text = line(result, "slimgemm", result.plain.median, passes, "1.000");
  text += line(result, "slimgemm, programmatic launches", result.programmatic.median, passes,
               ratio_text(result.gain));
  text += line(result, "slimgemm, layers by themselves", single_us, passes,
               fmt::format("{:.3f}", result.plain.median / single_us));
  if (result.baseline && result.baseline_ratio) {
    text += line(result, report.baseline, result.baseline->median, passes,
                 ratio_text(*result.baseline_ratio));
  }
  return text;
}

}  // namespace

std::string chain_text(const ChainReport& report) {
  std::string text = fmt::format(
      "{} passes through {}: {:.2f} GB of packed weights, no copy read twice\n", report.passes,
      fmt::join(report.layers, ", "), static_cast<double>(report.weight_bytes) / 1e9);
  for (const ChainResult& result : report.results) {
    text += fmt::format("m={}: {}\n", result.m, flow_text(result));
  }
  text += fmt::format("\n{:>5}  {:<32}  {:>10}  {:>9}  {:>9}  {}\n", "m", "", "chain us", "pass us",
                      "layer us", "speedup over the first line");
  for (const ChainResult& result : report.results) text += result_text(report, result);
  for (const ChainResult& result : report.results) {
    for (const std::string& failure : result.failures) text += "WRONG: " + failure + '\n';
  }
  return text;
}

#if SLIMGEMM_HAVE_JSON

namespace {

using Json = nlohmann::ordered_json;

// Nanoseconds are more than device events tell, and 0.1 % more than ratios of times.
double rounded(double value) { return std::round(value * 1e3) / 1e3; }

Json time_json(const judge::Spread& time) {
  return {{"median_us", rounded(time.median)},
          {"quartile_low_us", rounded(time.quartile_low)},
          {"quartile_high_us", rounded(time.quartile_high)},
          {"replays", time.count}};
}

Json ratio_json(const judge::Interval& ratio) {
  return {
      {"value", rounded(ratio.value)}, {"low", rounded(ratio.low)}, {"high", rounded(ratio.high)}};
}

Json result_json(const ChainReport& report, const ChainResult& result) {
  Json layers = Json::array();
  for (std::size_t i = 0; i < result.steps.size(); ++i) {
    const Step& step = result.steps[i];
    const Json x_from = step.x_from == Step::fixed_x
                            ? Json(nullptr)
                            : Json(result.steps[static_cast<std::size_t>(step.x_from)].shape.name);
    layers.push_back({{"layer", step.shape.name},
                      {"n", step.shape.n},
                      {"k", step.shape.k},
                      {"x_from", x_from},
                      {"kernel", step.kernel},
                      {"by_itself", time_json(result.single[i])}});
  }
  Json json = {{"m", result.m},
               {"empty_replay_us", rounded(result.empty_us)},
               {"layers", std::move(layers)},
               {"plain", time_json(result.plain)},
               {"programmatic", time_json(result.programmatic)},
               {"gain", ratio_json(result.gain)},
               {"pass_by_itself_us", rounded(result.single_sum_us())},
               {"baseline", nullptr},
               {"failures", result.failures}};
  if (result.baseline && result.baseline_ratio) {
    json["baseline"] = time_json(*result.baseline);
    json["baseline"]["name"] = report.baseline;
    json["baseline"]["plain_over_baseline"] = ratio_json(*result.baseline_ratio);
  }
  return json;
}

}  // namespace

std::string chain_json(const ChainReport& report, const ChainFacts& facts) {
  Json json = {{"schema", "slimgemm-chain-1"},
               {"command", facts.command_line},
               {"version", judge::build_version()},
               {"commit", judge::build_commit()},
               {"date", facts.date},
               {"device", Json::object()},
               {"passes", report.passes},
               {"weight_bytes", report.weight_bytes},
               {"results", Json::array()}};
  for (const auto& [key, value] : facts.device) json["device"][key] = value;
  for (const ChainResult& result : report.results) {
    json["results"].push_back(result_json(report, result));
  }
  return json.dump(1) + "\n";
}

#else

std::string chain_json(const ChainReport&, const ChainFacts&) {
  throw Error(ErrorCode::unsupported,
              "--json needs a build with nlohmann-json (nlohmann-json3-dev)");
}

#endif

}  // namespace slimgemm::bench
