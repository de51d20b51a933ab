// SPDX-License-Identifier: Apache-2.0
#include "judge/shapes_summary.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace slimgemm::judge {
namespace {

constexpr std::size_t listed_max = 8;

// The lowest speedups first, and of a long list no more than these: the table has them all.
std::string list(std::vector<const CaseResult*> cases, std::size_t baseline) {
  std::stable_sort(cases.begin(), cases.end(), [&](const CaseResult* a, const CaseResult* b) {
    return a->against(baseline)->speedup->value < b->against(baseline)->speedup->value;
  });
  std::vector<std::string> texts;
  for (const CaseResult* c : cases) {
    if (texts.size() == listed_max) break;
    texts.push_back(speedup_text(*c, baseline));
  }
  std::string text = fmt::format("{}", fmt::join(texts, "; "));
  if (cases.size() == texts.size()) return text;
  return text + fmt::format("; and {} more", cases.size() - texts.size());
}

std::string large_text(const ShapesSummary& summary, std::size_t baseline) {
  std::string text =
      fmt::format("over {} MB and m <= {}: ", large_layer_bytes / 1'000'000, large_layer_tokens);
  if (summary.large.empty()) return text + "no such shape";
  text +=
      fmt::format("{} of {} shapes reach {:.2f}", summary.large.size() - summary.large_below.size(),
                  summary.large.size(), large_layer_speedup);
  if (summary.large_below.empty()) return text;
  return text + "; below: " + list(summary.large_below, baseline);
}

}  // namespace

bool is_large_layer(const Shape& shape) {
  return shape.dtype == DType::bf16 && shape.m <= large_layer_tokens &&
         shape.n * shape.k * size_bytes(shape.dtype) > large_layer_bytes;
}

std::vector<ShapesSummary> summarise_shapes(const RunResult& result) {
  std::vector<ShapesSummary> summaries;
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    ShapesSummary& summary = summaries.emplace_back();
    summary.baseline = result.baselines[i].name;
    std::vector<double> speedups;
    for (const CaseResult& c : result.cases) {
      const BaselineResult* against = c.against(i);
      if (against == nullptr || !against->speedup) continue;
      const double speedup = against->speedup->value;
      speedups.push_back(speedup);
      summary.compared.push_back(&c);
      if (speedup < 1) summary.slower.push_back(&c);
      if (!is_large_layer(c.shape)) continue;
      summary.large.push_back(&c);
      if (speedup < large_layer_speedup) summary.large_below.push_back(&c);
    }
    if (!speedups.empty()) summary.geometric_mean = geometric_mean(speedups);
  }
  return summaries;
}

std::string speedup_text(const CaseResult& c, std::size_t baseline) {
  std::string text = fmt::format("{} m={}", c.shape.name, c.shape.m);
  const BaselineResult* against = c.against(baseline);
  if (against == nullptr || !against->speedup) return text;
  const Interval& speedup = *against->speedup;
  return text + fmt::format(" {:.3f} [{:.3f}, {:.3f}]", speedup.value, speedup.low, speedup.high);
}

std::optional<double> ceiling_share(const CaseResult& c) {
  if (!c.contender.time || !c.ceiling_us) return std::nullopt;
  return *c.ceiling_us / c.contender.time->median;
}

std::string shapes_summary_text(const RunResult& result, const std::string& bullet,
                                const std::string& indent) {
  std::string text;
  const auto summaries = summarise_shapes(result);
  for (std::size_t i = 0; i < summaries.size(); ++i) {
    const ShapesSummary& summary = summaries[i];
    if (summary.compared.empty()) {
      text +=
          fmt::format("{}against {}: no shape was timed on both sides\n", bullet, summary.baseline);
      continue;
    }
    const std::string slower = summary.slower.empty() ? "none" : list(summary.slower, i);
    text += fmt::format(
        "{}against {}: geometric mean of the speedups {:.3f} ({} shapes; no score)\n"
        "{}slower than {}: {}\n{}{}\n",
        bullet, summary.baseline, summary.geometric_mean, summary.compared.size(), indent,
        summary.baseline, slower, indent, large_text(summary, i));
  }
  return text;
}

}  // namespace slimgemm::judge
