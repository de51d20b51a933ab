// SPDX-License-Identifier: Apache-2.0
// docs/tuning.md documents every field.
#include "tune/report.hpp"

#include "tune/layers.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace slimgemm::tune {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* schema = "slimgemm-tune-1";

// Nanoseconds are more than device events tell.
double rounded(double us) { return std::round(us * 1e3) / 1e3; }

Json attempt_json(const Attempt& attempt) {
  Json json = {{"instance", plan::instance_name(attempt.instance)},
               {"estimated_us", rounded(attempt.estimated_us)},
               {"finalist", attempt.finalist}};
  if (attempt.time) {
    json["median_us"] = rounded(attempt.time->median);
    json["quartile_low_us"] = rounded(attempt.time->quartile_low);
    json["quartile_high_us"] = rounded(attempt.time->quartile_high);
    json["replays"] = attempt.time->count;
  } else {
    json["median_us"] = nullptr;
    json["failure"] = attempt.failure;
  }
  return json;
}

Json shape_json(const ShapeResult& shape) {
  Json json = {{"layer", shape.layer},
               {"encoding", name(shape.problem.encoding)},
               {"n", shape.problem.rows},
               {"k", shape.problem.k},
               {"m", shape.problem.m},
               {"x_aligned", shape.problem.x_aligned},
               {"empty_replay_us", rounded(shape.empty_us)},
               {"model_choice", plan::instance_name(shape.model_choice)},
               {"best", nullptr},
               {"instances", Json::array()}};
  if (const Attempt* best = shape.best()) json["best"] = plan::instance_name(best->instance);
  for (const Attempt& attempt : shape.attempts) json["instances"].push_back(attempt_json(attempt));
  return json;
}

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  MeasuredFile read(const Json& json) const {
    const auto found = text(json, "the file", "schema");
    if (found != schema) {
      refuse(fmt::format("schema is '{}'; this version reads '{}'", found, schema));
    }
    MeasuredFile file;
    file.gpu.sm_count = static_cast<int>(count(json, "the file", "sm_count"));
    file.gpu.smem_per_sm_bytes = static_cast<int>(count(json, "the file", "smem_per_sm_bytes"));
    const Json& shapes = list(json, "the file", "shapes");
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      file.shapes.push_back(shape(shapes[i], fmt::format("shapes[{}]", i)));
    }
    return file;
  }

 private:
  [[noreturn]] void refuse(const std::string& message) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: {}", name_, message));
  }

  /// The field, if `fits` says that it is what it must be.
  template <typename Fits>
  const Json& field(const Json& object, const std::string& where, const char* key,
                    const char* wanted, Fits fits) const {
    if (!object.is_object() || !object.contains(key)) {
      refuse(fmt::format("{} has no field '{}' (docs/tuning.md)", where, key));
    }
    const Json& value = object.at(key);
    if (!fits(value)) refuse(fmt::format("{} of {} must be {}", key, where, wanted));
    return value;
  }

  std::string text(const Json& object, const std::string& where, const char* key) const {
    return field(object, where, key, "a text", [](const Json& v) { return v.is_string(); })
        .get<std::string>();
  }
  std::int64_t count(const Json& object, const std::string& where, const char* key) const {
    return field(
               object, where, key, "an integer from 1 to 2147483647",
               [](const Json& v) { return v.is_number_integer() && v >= 1 && v <= max_dimension; })
        .get<std::int64_t>();
  }
  const Json& list(const Json& object, const std::string& where, const char* key) const {
    return field(object, where, key, "a list", [](const Json& v) { return v.is_array(); });
  }

  MeasuredShape shape(const Json& json, const std::string& where) const {
    MeasuredShape shape;
    shape.layer = text(json, where, "layer");
    shape.problem.encoding =
        parse_encoding(fmt::format("{}: {}.encoding", name_, where), text(json, where, "encoding"));
    shape.problem.rows = count(json, where, "n");
    shape.problem.k = count(json, where, "k");
    shape.problem.m = count(json, where, "m");
    shape.problem.x_aligned = field(json, where, "x_aligned", "true or false", [](const Json& v) {
                                return v.is_boolean();
                              }).get<bool>();
    const Json& instances = list(json, where, "instances");
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const std::string inside = fmt::format("{}.instances[{}]", where, i);
      const Json& median = field(
          instances[i], inside, "median_us", "null or a number above 0",
          [](const Json& v) { return v.is_null() || (v.is_number() && v.get<double>() > 0); });
      if (median.is_null()) continue;
      shape.instances.push_back({text(instances[i], inside, "instance"), median.get<double>()});
    }
    std::stable_sort(
        shape.instances.begin(), shape.instances.end(),
        [](const Measured& a, const Measured& b) { return a.median_us < b.median_us; });
    return shape;
  }

  const std::string& name_;
};

}  // namespace

bool json_available() { return true; }

std::string json_text(const Result& result, const Facts& facts) {
  Json json = {{"schema", schema},
               {"command", facts.command_line},
               {"version", facts.version},
               {"commit", facts.commit},
               {"date", facts.date},
               {"exception_share", facts.exception_share ? Json(*facts.exception_share)
                                                         : Json("as in normal weights")},
               {"device", Json::object()},
               {"sm_count", result.gpu.sm_count},
               {"smem_per_sm_bytes", result.gpu.smem_per_sm_bytes},
               {"shapes", Json::array()}};
  for (const auto& [key, value] : facts.device) json["device"][key] = value;
  for (const ShapeResult& shape : result.shapes) json["shapes"].push_back(shape_json(shape));
  return json.dump(1) + "\n";
}

MeasuredFile parse_json(std::string_view text, const std::string& name) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}: not JSON", name));
  }
  return Reader(name).read(json);
}

}  // namespace slimgemm::tune

#else

namespace slimgemm::tune {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported, "JSON needs a build with nlohmann-json (nlohmann-json3-dev)");
}

}  // namespace

bool json_available() { return false; }
std::string json_text(const Result&, const Facts&) { refuse(); }
MeasuredFile parse_json(std::string_view, const std::string&) { refuse(); }

}  // namespace slimgemm::tune

#endif
