// SPDX-License-Identifier: Apache-2.0
// Reads the judge's JSON; docs/report-schema.md documents every field.
#include "lab/times.hpp"

#include <fmt/format.h>
#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

#include <algorithm>

namespace slimgemm::lab {
namespace {

using Json = nlohmann::json;

constexpr const char* schema = "slimgemm-judge-1";

/// A value for a message; of a list or an object only what it is.
std::string shown(const Json& value) {
  return value.is_structured() ? std::string("an ") + value.type_name() : value.dump();
}

class JudgeReader {
 public:
  explicit JudgeReader(const std::string& name) : name_(name) {}

  TimesTable read(const Json& report) {
    const std::string found = text(report, "the report", "schema");
    if (found != schema) {
      refuse(fmt::format("schema is '{}'; this version reads '{}'", found, schema));
    }
    if (const auto file = report.find("shape_file"); file != report.end() && !file->is_null()) {
      refuse(fmt::format("the run judged the shape file {}; a score is the fixed problem's",
                         file->is_string() ? file->get<std::string>() : shown(*file)));
    }
    const Json& baseline = field(report, "the report", "baseline");
    if (baseline.is_null()) {
      refuse("the run had no baseline, so there is no speedup; judge again with a --baseline");
    }
    TimesTable table;
    table.source = fmt::format("{}: {} (ours) against {} (baseline), {}", name_,
                               text(field(report, "the report", "contender"), "contender", "name"),
                               text(baseline, "baseline", "name"),
                               text(field(report, "the report", "device"), "device", "device"));
    table.verdict = text(report, "the report", "verdict");
    const Json& score = field(report, "the report", "score");
    if (!score.is_null()) {
      table.stated_score = positive(score, "score");
    }
    const Json& shapes = field(report, "the report", "shapes");
    if (!shapes.is_array()) {
      refuse("shapes is not a list");
    }
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      read_shape(shapes[i], fmt::format("shapes[{}]", i), table);
    }
    if (std::all_of(table.loads.begin(), table.loads.end(),
                    [](const LoadTimes& load) { return load.empty(); })) {
      refuse("no shape was timed on both sides");
    }
    return table;
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name_, message));
  }

  const Json& field(const Json& object, const std::string& where, const char* key) const {
    if (!object.is_object() || !object.contains(key)) {
      refuse(fmt::format("{} has no field '{}' (docs/report-schema.md)", where, key));
    }
    return object.at(key);
  }

  std::string text(const Json& object, const std::string& where, const char* key) const {
    const Json& value = field(object, where, key);
    if (!value.is_string()) {
      refuse(fmt::format("{} of {} is {}; allowed: a text", key, where, shown(value)));
    }
    return value.get<std::string>();
  }

  double positive(const Json& value, const std::string& what) const {
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0 && number <= time_max_us)) {
      refuse(fmt::format("{} is {}; allowed: a number above 0 and at most {:g}", what, shown(value),
                         time_max_us));
    }
    return number;
  }

  /// The median of a side, or nothing where it was not run or not timed.
  std::optional<double> median(const Json& shape, const std::string& where,
                               const char* side) const {
    const Json& times = field(shape, where, side);
    if (times.is_null()) {
      return std::nullopt;
    }
    const std::string inside = fmt::format("{}.{}", where, side);
    const Json& value = field(times, inside, "median_us");
    return value.is_null() ? std::nullopt : std::optional(positive(value, inside + ".median_us"));
  }

  void read_shape(const Json& shape, const std::string& where, TimesTable& table) const {
    const Json& scored = field(shape, where, "scored");
    if (!scored.is_boolean()) {
      refuse(fmt::format("{}.scored is {}; allowed: true or false", where, shown(scored)));
    }
    const std::optional<double> ours = median(shape, where, "contender");
    const std::optional<double> baseline = median(shape, where, "baseline");
    if (!scored.get<bool>() || !ours || !baseline) {
      return;
    }
    std::optional<TimePair>& slot = slot_of(shape, where, table);
    if (slot) {
      refuse(fmt::format("{} is a shape that was given before", where));
    }
    slot = TimePair{*baseline, *ours};
  }

  std::optional<TimePair>& slot_of(const Json& shape, const std::string& where,
                                   TimesTable& table) const {
    const std::string layer = text(shape, where, "layer");
    const auto layer_at = std::find_if(judge::layers().begin(), judge::layers().end(),
                                       [&](const auto& entry) { return entry.name == layer; });
    if (layer_at == judge::layers().end()) {
      refuse(fmt::format("{}: layer '{}' is none of the five", where, layer));
    }
    const Json& m = field(shape, where, "m");
    const auto load_at = std::find_if(judge::loads().begin(), judge::loads().end(),
                                      [&](const auto& entry) { return m == entry.m; });
    if (load_at == judge::loads().end()) {
      refuse(fmt::format("{}: m is {}, which is none of the six loads", where, shown(m)));
    }
    LoadTimes& load = table.loads.at(static_cast<std::size_t>(load_at - judge::loads().begin()));
    return load.shapes.at(static_cast<std::size_t>(layer_at - judge::layers().begin()));
  }

  const std::string& name_;
};

}  // namespace

bool json_supported() { return true; }

TimesTable parse_judge_json(std::string_view text, const std::string& name) {
  Json report;
  try {
    report = Json::parse(text);
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: not JSON: {}", name, error.what()));
  }
  return JudgeReader(name).read(report);
}

}  // namespace slimgemm::lab

#else

namespace slimgemm::lab {

bool json_supported() { return false; }

TimesTable parse_judge_json(std::string_view, const std::string& name) {
  throw Error(
      ErrorCode::unsupported,
      fmt::format("{}: this build reads no JSON, for nlohmann-json (nlohmann-json3-dev) was not "
                  "found; give a CSV table (labs/README.md)",
                  name));
}

}  // namespace slimgemm::lab

#endif
