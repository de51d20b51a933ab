// SPDX-License-Identifier: Apache-2.0
#include "lab/times.hpp"

#include "lab/number.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <slimgemm/error.hpp>
#include <vector>

namespace slimgemm::lab {
namespace {

constexpr std::size_t file_bytes_max = std::size_t{64} << 20;
constexpr std::string_view load_header = "load,baseline_us,ours_us";
constexpr std::string_view shape_header = "load,layer,baseline_us,ours_us";

/// Reads the table line by line; every refusal names the line.
class CsvReader {
 public:
  explicit CsvReader(const std::string& name) : name_(name) {}

  TimesTable read(std::string_view text) {
    if (text.substr(0, 3) == "\xEF\xBB\xBF") {  // a UTF-8 byte order mark
      text.remove_prefix(3);
    }
    for (const std::string_view line : split(text, '\n')) {
      ++line_;
      const std::string_view content = trimmed(line.substr(0, line.find('#')));
      if (!content.empty()) {
        read_line(split(content, ','));
      }
    }
    check_sums();
    return std::move(table_);
  }

 private:
  enum class Rows { unknown, loads, shapes };

  [[noreturn]] void refuse(std::size_t line, const std::string& message) const {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}:{}: {}", name_, line, message));
  }

  void read_line(const std::vector<std::string_view>& fields) {
    if (fields.front() == "load") {
      read_header(fields);
      return;
    }
    if (rows_ == Rows::unknown) {
      refuse(line_, fmt::format("'{}' stands before any header; begin with the line '{}' or '{}'",
                                fields.front(), load_header, shape_header));
    }
    const std::size_t expected = rows_ == Rows::loads ? 3 : 4;
    if (fields.size() != expected) {
      refuse(line_, fmt::format("{} fields, {} expected: {}", fields.size(), expected,
                                rows_ == Rows::loads ? load_header : shape_header));
    }
    const std::size_t load = load_index(fields[0]);
    const TimePair time{time_us("baseline_us", fields[expected - 2]),
                        time_us("ours_us", fields[expected - 1])};
    LoadTimes& times = table_.loads.at(load);
    if (rows_ == Rows::loads) {
      store(times.sum, sum_lines_.at(load), time, fmt::format("load '{}'", fields[0]));
    } else {
      const std::size_t layer = layer_index(fields[1]);
      store(times.shapes.at(layer), shape_lines_.at(load).at(layer), time,
            fmt::format("load '{}', layer '{}'", fields[0], fields[1]));
    }
  }

  void read_header(const std::vector<std::string_view>& fields) {
    const std::string header = fmt::format("{}", fmt::join(fields, ","));
    if (header != load_header && header != shape_header) {
      refuse(line_, fmt::format("the header is '{}'; allowed: '{}' or '{}'", header, load_header,
                                shape_header));
    }
    rows_ = header == load_header ? Rows::loads : Rows::shapes;
  }

  [[nodiscard]] std::size_t load_index(std::string_view name) const {
    return index_in(judge::loads(), "load", name);
  }

  [[nodiscard]] std::size_t layer_index(std::string_view name) const {
    return index_in(judge::layers(), "layer", name);
  }

  template <typename List>
  [[nodiscard]] std::size_t index_in(const List& list, const char* what,
                                     std::string_view name) const {
    const auto found = std::find_if(list.begin(), list.end(),
                                    [&](const auto& entry) { return entry.name == name; });
    if (found == list.end()) {
      std::vector<std::string_view> names;
      std::transform(list.begin(), list.end(), std::back_inserter(names),
                     [](const auto& entry) -> std::string_view { return entry.name; });
      refuse(line_,
             fmt::format("{} '{}' is unknown; allowed: {}", what, name, fmt::join(names, ", ")));
    }
    return static_cast<std::size_t>(found - list.begin());
  }

  [[nodiscard]] double time_us(const char* column, std::string_view text) const {
    const std::optional<double> value = parse_number(text);
    if (!value || *value <= 0 || *value > time_max_us) {
      refuse(line_,
             fmt::format("{} is '{}'; allowed: a time in microseconds, above 0 and at most {:g}",
                         column, text, time_max_us));
    }
    return *value;
  }

  void store(std::optional<TimePair>& slot, std::size_t& slot_line, const TimePair& time,
             const std::string& what) const {
    if (slot) {
      refuse(line_, fmt::format("{} was given on line {} already; keep one", what, slot_line));
    }
    slot = time;
    slot_line = line_;
  }

  /// A sum beside shapes must leave room for the shapes that are not given.
  void check_sums() const {
    if (rows_ == Rows::unknown) {
      refuse(line_,
             fmt::format("no times; begin with the line '{}' or '{}'", load_header, shape_header));
    }
    bool any = false;
    for (std::size_t load = 0; load < load_count; ++load) {
      const LoadTimes& times = table_.loads.at(load);
      any = any || !times.empty();
      if (!times.sum || times.shapes_given() == 0) {
        continue;
      }
      const std::string_view name = judge::loads().at(load).name;
      if (times.shapes_given() == judge::layer_count) {
        refuse(
            sum_lines_.at(load),
            fmt::format("load '{}' is given as a sum and by all five shapes; keep one of the two",
                        name));
      }
      TimePair shapes;
      for (const std::optional<TimePair>& shape : times.shapes) {
        shapes += shape.value_or(TimePair{});
      }
      if (shapes.ours_us >= times.sum->ours_us || shapes.baseline_us >= times.sum->baseline_us) {
        refuse(sum_lines_.at(load),
               fmt::format("load '{}' takes {} us (baseline {}), but {} of its five shapes already "
                           "take {} us (baseline {}); the sum must be larger",
                           name, times.sum->ours_us, times.sum->baseline_us, times.shapes_given(),
                           shapes.ours_us, shapes.baseline_us));
      }
    }
    if (!any) {
      refuse(line_, "a header, but no row of times under it");
    }
  }

  const std::string& name_;
  TimesTable table_;
  Rows rows_ = Rows::unknown;
  std::size_t line_ = 0;
  std::array<std::size_t, load_count> sum_lines_{};
  std::array<std::array<std::size_t, judge::layer_count>, load_count> shape_lines_{};
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::vector<char> chunk(std::size_t{1} << 16);
  while (file) {
    file.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    text.append(chunk.data(), static_cast<std::size_t>(file.gcount()));
    if (text.size() > file_bytes_max) {
      throw Error(
          ErrorCode::io_error,
          fmt::format("'{}' is larger than {} MiB; this is no table of times and no report of "
                      "the judge",
                      path, file_bytes_max >> 20));
    }
  }
  if (!file.eof()) {
    throw Error(
        ErrorCode::io_error,
        fmt::format("'{}' cannot be read; give a CSV table of times or the judge's JSON", path));
  }
  return text;
}

}  // namespace

int LoadTimes::shapes_given() const {
  return static_cast<int>(std::count_if(shapes.begin(), shapes.end(),
                                        [](const auto& shape) { return shape.has_value(); }));
}

TimesTable parse_times_csv(std::string_view text, const std::string& name) {
  TimesTable table = CsvReader(name).read(text);
  table.source = name;
  return table;
}

TimesTable read_times(const std::string& path) {
  const std::string text = read_text(path);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = path.ends_with(".json") || (first != std::string::npos && text[first] == '{');
  return json ? parse_judge_json(text, path) : parse_times_csv(text, path);
}

}  // namespace slimgemm::lab
