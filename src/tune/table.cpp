// SPDX-License-Identifier: Apache-2.0
#include "tune/table.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace slimgemm::tune {
namespace {

constexpr const char* head =
    "# SPDX-License-Identifier: Apache-2.0\n"
    "# Tuned plans: a shape in this table runs with the instance that was the fastest when "
    "measured; "
    "for\n"
    "# all others the cost model chooses. Written by `slimgemm tune --table`, built into the "
    "library;\n"
    "# docs/tuning.md says what the columns mean. The comment above an entry says where it comes "
    "from.\n";

std::string comment(const std::string& source) {
  std::string text = "# ";
  for (const char c : source) {
    text += c;
    if (c == '\n') text += "# ";
  }
  return text + '\n';
}

}  // namespace

std::vector<plan::TunedPlan> tuned_plans(const Result& result, const std::string& source) {
  std::vector<plan::TunedPlan> plans;
  for (const ShapeResult& shape : result.shapes) {
    const Attempt* best = shape.best();
    if (best == nullptr) continue;
    plans.push_back({.sm_count = result.gpu.sm_count,
                     .encoding = shape.problem.encoding,
                     .rows = shape.problem.rows,
                     .k = shape.problem.k,
                     .m = shape.problem.m,
                     .measured_us = best->median_us(),
                     .instance = best->instance,
                     .source = source});
  }
  return plans;
}

std::vector<plan::TunedPlan> merge(std::vector<plan::TunedPlan> old,
                                   const std::vector<plan::TunedPlan>& fresh) {
  for (const plan::TunedPlan& entry : fresh) {
    const auto at = std::lower_bound(old.begin(), old.end(), entry, plan::is_before);
    if (at != old.end() && !plan::is_before(entry, *at)) {
      *at = entry;
    } else {
      old.insert(at, entry);
    }
  }
  return old;
}

std::string table_text(const std::vector<plan::TunedPlan>& entries) {
  std::string text = fmt::format("{}{}\n", head, plan::tuning_columns);
  const std::string* source = nullptr;
  for (const plan::TunedPlan& e : entries) {
    if (source == nullptr || *source != e.source) text += comment(e.source);
    source = &e.source;
    text += fmt::format("{},{},{},{},{},{:.2f},{}\n", e.sm_count, name(e.encoding), e.rows, e.k,
                        e.m, std::max(e.measured_us, 0.01), plan::instance_name(e.instance));
  }
  return text;
}

plan::TuningText read_table_file(const std::string& path) {
  if (!std::filesystem::exists(path)) return {};
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    throw Error(ErrorCode::io_error, fmt::format("cannot read {}", path));
  }
  plan::TuningText text = plan::read_tuning_table(content.str(), path);
  if (!text.errors.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}", fmt::join(text.errors, "\n")));
  }
  return text;
}

}  // namespace slimgemm::tune
