// SPDX-License-Identifier: Apache-2.0
#include "tune/report.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace slimgemm::tune {
namespace {

constexpr std::size_t worst_shown = 5;

std::string shape_name(const ShapeResult& shape) {
  return fmt::format("{} m={}", shape.layer, shape.problem.m);
}

/// "1.034 times".
std::string times(double ratio) { return fmt::format("{:.3f} times", ratio); }

std::string headline(const ShapeResult& shape) {
  std::string text =
      fmt::format("{}: {} x {} in {}, {} instances", shape_name(shape), shape.problem.rows,
                  shape.problem.k, name(shape.problem.encoding), shape.attempts.size());
  const Attempt* best = shape.best();
  if (best == nullptr) return text + ", all failed";
  text += fmt::format("; best {:.2f} us", best->median_us());
  const auto ratio = shape.model_ratio();
  if (!ratio) return text + ", the cost model's choice failed";
  return text + fmt::format(", the cost model's choice {:.2f} us ({})", shape.model().median_us(),
                            times(*ratio));
}

}  // namespace

std::string shape_text(const ShapeResult& shape) {
  std::string text = headline(shape) + '\n';
  for (const Attempt& attempt : shape.attempts) {
    const char* mark = attempt.instance == shape.model_choice ? "  <- model" : "";
    const std::string instance = plan::instance_name(attempt.instance);
    if (attempt.time) {
      text +=
          fmt::format("  {:8.2f} us, estimated {:8.2f}, {:3} replays  {}{}\n", attempt.median_us(),
                      attempt.estimated_us, attempt.time->count, instance, mark);
    } else {
      text += fmt::format("    failed, estimated {:8.2f}: {}{}: {}\n", attempt.estimated_us,
                          instance, mark, attempt.failure);
    }
  }
  return text;
}

std::string summary_text(const Result& result) {
  std::vector<std::pair<double, const ShapeResult*>> judged;
  for (const ShapeResult& shape : result.shapes) {
    if (const auto ratio = shape.model_ratio()) judged.emplace_back(*ratio, &shape);
  }
  const std::size_t unknown = result.shapes.size() - judged.size();
  const auto near = std::count_if(judged.begin(), judged.end(),
                                  [](const auto& entry) { return entry.first <= model_tolerance; });
  std::string text =
      fmt::format("The cost model's choice is within {:.0f} % of the best for {} of {} shapes.\n",
                  100 * (model_tolerance - 1), near, result.shapes.size());
  std::stable_sort(judged.begin(), judged.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  judged.resize(std::min(judged.size(), worst_shown));
  std::size_t width = 0;
  for (const auto& entry : judged) width = std::max(width, shape_name(*entry.second).size());
  for (const auto& [ratio, shape] : judged) {
    if (shape->best()->instance == shape->model_choice) break;
    text += fmt::format("  {:<{}}  {} the best: {:.2f} us with {}, best {:.2f} us with {}\n",
                        shape_name(*shape), width, times(ratio), shape->model().median_us(),
                        plan::instance_name(shape->model_choice), shape->best()->median_us(),
                        plan::instance_name(shape->best()->instance));
  }
  if (unknown > 0) {
    text +=
        fmt::format("For {} of them it is not known: the cost model's choice failed.\n", unknown);
  }
  return text;
}

std::string source_text(const Facts& facts) {
  std::string device = "unknown device";
  for (const auto& [key, value] : facts.device) {
    if (key == "device") device = value;
  }
  return fmt::format("{}, {}, slimgemm {} commit {}", device, facts.date.substr(0, 10),
                     facts.version, facts.commit);
}

}  // namespace slimgemm::tune
