// SPDX-License-Identifier: Apache-2.0
// The file is untrusted: every value is checked before it is used.
#include "judge/shape_file.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#if SLIMGEMM_HAVE_JSON

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <vector>

namespace slimgemm::judge {
namespace {

using JsonValue = nlohmann::json;

constexpr const char* schema = "slimgemm-shapes-1";
constexpr std::size_t text_max = 1000;    // bytes of a role or a model's name
constexpr std::size_t shown_max = 60;     // of a value in a message
constexpr std::size_t message_max = 200;  // of the JSON reader, which quotes what it read last

// A value for a message; of a list or an object only what it is.
std::string shown(const JsonValue& value) {
  if (value.is_structured()) return std::string("an ") + value.type_name();
  std::string text = value.dump(-1, ' ', true, JsonValue::error_handler_t::replace);
  return text.size() > shown_max ? text.substr(0, shown_max) + "..." : text;
}

class ShapeFileReader {
 public:
  explicit ShapeFileReader(const std::string& name) : name_(name) {}

  Problem read(std::string_view text) {
    const JsonValue file = parse(text);
    require_fields(file, "the file", {"schema", "description", "tokens", "layers"});
    if (const std::string found = string(file, "the file", "schema"); found != schema) {
      refuse(fmt::format("schema is {}; this version reads \"{}\"", shown(file["schema"]), schema));
    }
    if (file.contains("description")) string(file, "the file", "description");
    if (file.contains("tokens")) default_tokens_ = tokens(file, "the file");
    const JsonValue& layers = field(file, "the file", "layers");
    if (!layers.is_array() || layers.empty() || layers.size() > shape_layers_max) {
      refuse(fmt::format(
          "layers is {}; allowed: a list of 1 to {} layers",
          layers.is_array() ? fmt::format("a list of {}", layers.size()) : shown(layers),
          shape_layers_max));
    }
    problem_.shape_file = name_;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      read_layer(layers[i], fmt::format("layers[{}]", i));
    }
    return std::move(problem_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} (docs/served-shapes.md describes the format)", name_, what));
  }

  // Of two values under one key a JSON reader keeps one in silence.
  JsonValue parse(std::string_view text) const {
    if (text.size() > shape_file_bytes_max) {
      refuse(
          fmt::format("it has {} bytes; allowed: at most {}", text.size(), shape_file_bytes_max));
    }
    std::vector<std::set<std::string>> keys;
    const auto reject_duplicates = [&](int, JsonValue::parse_event_t event, JsonValue& value) {
      if (event == JsonValue::parse_event_t::object_start) keys.emplace_back();
      if (event == JsonValue::parse_event_t::object_end) keys.pop_back();
      if (event == JsonValue::parse_event_t::key &&
          !keys.back().insert(value.get<std::string>()).second) {
        refuse(fmt::format("the key {} appears twice in one object", shown(value)));
      }
      return true;
    };
    try {
      return JsonValue::parse(text, reject_duplicates);
    } catch (const JsonValue::exception& error) {
      refuse(fmt::format("not JSON: {}", std::string(error.what()).substr(0, message_max)));
    }
  }

  void require_fields(const JsonValue& object, const std::string& where,
                      const std::vector<std::string>& known) const {
    if (!object.is_object())
      refuse(fmt::format("{} is {}; allowed: an object", where, shown(object)));
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      refuse(fmt::format("{} has a field {}; allowed: {}", where, shown(JsonValue(key)),
                         fmt::join(known, ", ")));
    }
  }

  const JsonValue& field(const JsonValue& object, const std::string& where, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) refuse(fmt::format("{} has no field \"{}\"", where, key));
    return *found;
  }

  std::string text_of(const JsonValue& value, const std::string& what) const {
    const bool sound = value.is_string() && !value.get_ref<const std::string&>().empty() &&
                       value.get_ref<const std::string&>().size() <= text_max;
    if (!sound) {
      refuse(
          fmt::format("{} is {}; allowed: a text of 1 to {} bytes", what, shown(value), text_max));
    }
    return value.get<std::string>();
  }

  std::string string(const JsonValue& object, const std::string& where, const char* key) const {
    return text_of(field(object, where, key), fmt::format("{} of {}", key, where));
  }

  std::int64_t integer(const JsonValue& value, const std::string& what, std::int64_t limit) const {
    const bool sound = value.is_number_unsigned() && value.get<std::uint64_t>() >= 1 &&
                       value.get<std::uint64_t>() <= static_cast<std::uint64_t>(limit);
    if (!sound) {
      refuse(
          fmt::format("{} is {}; allowed: a whole number from 1 to {}", what, shown(value), limit));
    }
    return value.get<std::int64_t>();
  }

  std::vector<std::int64_t> tokens(const JsonValue& object, const std::string& where) const {
    const JsonValue& list = field(object, where, "tokens");
    if (!list.is_array() || list.empty()) {
      refuse(fmt::format("tokens of {} is {}; allowed: a list of token counts, such as [1, 8]",
                         where, list.is_array() ? "empty" : shown(list)));
    }
    std::vector<std::int64_t> counts;
    for (const JsonValue& entry : list) {
      counts.push_back(integer(entry, fmt::format("a token count of {}", where), shape_tokens_max));
      if (std::count(counts.begin(), counts.end(), counts.back()) > 1) {
        refuse(fmt::format("tokens of {} has {} twice", where, counts.back()));
      }
    }
    return counts;
  }

  // Names stand in tables and are given on the command line, separated by commas.
  std::string layer_name(const JsonValue& layer, const std::string& where) {
    std::string name = string(layer, where, "name");
    const bool sound =
        name.size() <= shape_name_max && std::all_of(name.begin(), name.end(), [](char c) {
          return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                 c == '_' || c == '-' || c == '.';
        });
    if (!sound) {
      refuse(fmt::format("name of {} is {}; allowed: 1 to {} of letters, digits, _ - and .", where,
                         shown(layer["name"]), shape_name_max));
    }
    if (!names_.insert(name).second) {
      refuse(fmt::format("{} is the second layer with the name \"{}\"", where, name));
    }
    return name;
  }

  // "role (first model, second model)"; both may be missing.
  std::string role(const JsonValue& layer, const std::string& where) const {
    std::string text = layer.contains("role") ? string(layer, where, "role") : std::string();
    if (!layer.contains("models")) return text;
    const JsonValue& models = layer["models"];
    if (!models.is_array()) {
      refuse(fmt::format("models of {} is {}; allowed: a list of texts", where, shown(models)));
    }
    std::vector<std::string> names;
    for (const JsonValue& model : models) {
      names.push_back(text_of(model, fmt::format("a model of {}", where)));
    }
    return fmt::format("{}{}({})", text, text.empty() ? "" : " ", fmt::join(names, ", "));
  }

  void read_layer(const JsonValue& entry, const std::string& where) {
    require_fields(entry, where, {"name", "n", "k", "dtype", "role", "models", "tokens"});
    LayerInfo layer{};
    layer.layer = static_cast<Layer>(problem_.layers.size());
    layer.name = layer_name(entry, where);
    const std::string place = fmt::format("{} ({})", where, layer.name);
    layer.n = integer(field(entry, place, "n"), fmt::format("n of {}", place), max_dimension);
    layer.k = integer(field(entry, place, "k"), fmt::format("k of {}", place), max_dimension);
    const std::string dtype = string(entry, place, "dtype");
    if (dtype != "bf16" && dtype != "f32") {
      refuse(fmt::format("dtype of {} is {}; allowed: bf16, f32", place, shown(entry["dtype"])));
    }
    layer.dtype = dtype == "bf16" ? DType::bf16 : DType::f32;
    // n, k < 2^31 and at most 4 bytes a weight: the product stays below 2^64.
    const auto bytes = static_cast<std::uint64_t>(layer.n) * static_cast<std::uint64_t>(layer.k) *
                       static_cast<std::uint64_t>(size_bytes(layer.dtype));
    if (bytes > static_cast<std::uint64_t>(shape_weight_bytes_max)) {
      refuse(fmt::format("{} has {} x {} weights, {} bytes; allowed: at most {} bytes", place,
                         layer.n, layer.k, bytes, shape_weight_bytes_max));
    }
    layer.role = role(entry, place);
    layer.slice_n = layer.n;
    const auto counts = entry.contains("tokens") ? tokens(entry, place) : default_tokens_;
    for (const std::int64_t m : counts) problem_.cases.push_back({layer.layer, m, true});
    problem_.layers.push_back(std::move(layer));
  }

  const std::string& name_;
  Problem problem_;
  std::set<std::string> names_;
  std::vector<std::int64_t> default_tokens_{1, 4, 8, 16, 32};
};

}  // namespace

Problem parse_shape_file(std::string_view text, const std::string& name) {
  return ShapeFileReader(name).read(text);
}

Problem read_shape_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  // One byte more than allowed, so that a file that never ends is refused too.
  std::string text(shape_file_bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.eof() && !file) throw Error(ErrorCode::io_error, fmt::format("cannot read {}", path));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_shape_file(text, path);
}

}  // namespace slimgemm::judge

#else

namespace slimgemm::judge {
namespace {

[[noreturn]] void refuse(const std::string& name) {
  throw Error(ErrorCode::unsupported,
              fmt::format("cannot read {}: this build has no JSON reader. Install "
                          "nlohmann-json3-dev, configure and build again",
                          name));
}

}  // namespace

Problem parse_shape_file(std::string_view, const std::string& name) { refuse(name); }
Problem read_shape_file(const std::string& path) { refuse(path); }

}  // namespace slimgemm::judge

#endif
