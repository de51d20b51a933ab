// SPDX-License-Identifier: Apache-2.0
#include "plan/tuning_table.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace slimgemm::plan {
namespace {

constexpr std::int64_t sm_count_max = 1024;
constexpr std::size_t columns = 7;

auto shape_key(const TunedPlan& e) { return std::tie(e.sm_count, e.encoding, e.rows, e.k); }
auto key(const TunedPlan& e) { return std::tie(e.sm_count, e.encoding, e.rows, e.k, e.m); }

template <typename Value>
std::optional<Value> parse_all(std::string_view text) {
  Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

/// What is wrong with a line, thrown inside the reader alone.
struct BadLine {
  std::string what;
};

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {
    for (const Encoding encoding : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
      for (const Instance& instance : instances_of(encoding)) {
        instances_[instance_name(instance)] = instance;
      }
    }
  }

  TuningText read(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      ++number_;
      line(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!in_body_) {
      report("no line names the columns: it must say " + std::string(tuning_columns));
    }
    return std::move(result_);
  }

 private:
  void line(std::string_view text) {
    const bool comment = text.starts_with('#');
    if (!in_body_) {
      if (comment) return;
      in_body_ = true;
      if (text != tuning_columns) {
        report("after the comments at the head comes the line " + std::string(tuning_columns) +
               ", not " + quoted(text));
      }
    } else if (comment) {
      comment_line(text);
    } else {
      after_comment_ = false;
      entry_line(text);
    }
  }

  // Comment lines that follow each other make one source, which holds until the next comment.
  void comment_line(std::string_view text) {
    text.remove_prefix(text.starts_with("# ") ? 2 : 1);
    if (after_comment_) {
      source_ += '\n';
      source_ += text;
    } else {
      source_ = text;
    }
    after_comment_ = true;
  }

  void entry_line(std::string_view text) {
    try {
      const std::array<std::string_view, columns> fields = split(text);
      TunedPlan entry = parse_shape(fields);
      check_order(entry);
      const auto instance = instances_.find(fields[6]);
      if (instance == instances_.end()) {
        result_.unknown_instances.push_back(
            place() + "no instance of the kernel table is called " + quoted(fields[6]) +
            "; measure the shape again (slimgemm tune --table) or remove the line");
        return;
      }
      entry.instance = instance->second;
      check_instance(entry);
      if (source_.empty()) {
        throw BadLine{"no comment above it says where it comes from (device, date, commit)"};
      }
      entry.source = source_;
      result_.entries.push_back(std::move(entry));
    } catch (const BadLine& bad) {
      report(bad.what);
    }
  }

  static std::array<std::string_view, columns> split(std::string_view text) {
    std::array<std::string_view, columns> fields;
    std::size_t count = 0;
    for (std::string_view rest = text;; ++count) {
      const std::size_t end = std::min(rest.find(','), rest.size());
      if (count < columns) fields[count] = rest.substr(0, end);
      if (end == rest.size()) break;
      rest.remove_prefix(end + 1);
    }
    if (++count != columns) {
      throw BadLine{quoted(text) + " has " + std::to_string(count) + " field(s), not the " +
                    std::to_string(columns) + " of " + std::string(tuning_columns)};
    }
    return fields;
  }

  static std::int64_t parse_integer(const char* column, std::string_view text, std::int64_t max) {
    const auto value = parse_all<std::int64_t>(text);
    if (value && *value >= 1 && *value <= max) return *value;
    throw BadLine{std::string(column) + " is " + quoted(text) + ": it must be a number from 1 to " +
                  std::to_string(max)};
  }

  static Encoding parse_encoding(std::string_view text) {
    for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
      if (text == slimgemm::name(e)) return e;
    }
    throw BadLine{"encoding is " + quoted(text) + ": it must be split12, raw16 or raw32"};
  }

  /// Everything but the instance.
  static TunedPlan parse_shape(const std::array<std::string_view, columns>& fields) {
    TunedPlan entry;
    entry.sm_count = static_cast<int>(parse_integer("sms", fields[0], sm_count_max));
    entry.encoding = parse_encoding(fields[1]);
    entry.rows = parse_integer("n", fields[2], max_dimension);
    entry.k = parse_integer("k", fields[3], max_dimension);
    entry.m = parse_integer("m", fields[4], max_dimension);
    const auto us = parse_all<double>(fields[5]);
    if (!us || !std::isfinite(*us) || *us <= 0) {
      throw BadLine{"measured_us is " + quoted(fields[5]) + ": it must be a number above 0"};
    }
    entry.measured_us = *us;
    return entry;
  }

  void check_order(const TunedPlan& entry) {
    const bool follows = !last_ || is_before(*last_, entry);
    const bool repeats = last_ && key(*last_) == key(entry);
    const std::string last_line = "line " + std::to_string(last_number_);
    last_ = entry;
    last_number_ = number_;
    if (repeats) throw BadLine{"the shape and m of " + last_line + " again"};
    if (!follows) {
      throw BadLine{"must come before " + last_line +
                    ": lines are sorted by sms, encoding (split12, raw16, raw32), n, k, m"};
    }
  }

  static void check_instance(const TunedPlan& entry) {
    const Problem problem{
        .rows = entry.rows, .k = entry.k, .m = entry.m, .encoding = entry.encoding};
    if (!std::isfinite(estimate_us(entry.instance, problem, {.sm_count = entry.sm_count}))) {
      throw BadLine{instance_name(entry.instance) + " can't serve this shape in " +
                    slimgemm::name(entry.encoding)};
    }
  }

  [[nodiscard]] std::string place() const {
    return name_ + " line " + std::to_string(number_) + ": ";
  }
  void report(const std::string& what) { result_.errors.push_back(place() + what); }

  const std::string& name_;
  std::map<std::string, Instance, std::less<>> instances_;
  TuningText result_;
  int number_ = 0;
  bool in_body_ = false;
  bool after_comment_ = false;
  std::string source_;
  std::optional<TunedPlan> last_;  // the last line whose shape could be read
  int last_number_ = 0;
};

/// The shipped table, or the reasons why there is none.
struct Shipped {
  TuningTable table;
  std::vector<std::string> errors;
};

const Shipped& shipped() {
  static const Shipped result = [] {
    TuningText text = read_tuning_table(shipped_tuning_text(), "tuning/plans.csv");
    Shipped read;
    read.errors = std::move(text.errors);
    read.errors.insert(read.errors.end(), text.unknown_instances.begin(),
                       text.unknown_instances.end());
    if (read.errors.empty()) read.table = TuningTable(std::move(text.entries));
    return read;
  }();
  return result;
}

}  // namespace

bool is_before(const TunedPlan& a, const TunedPlan& b) { return key(a) < key(b); }

TuningText read_tuning_table(std::string_view text, const std::string& name) {
  return Reader(name).read(text);
}

TuningTable::TuningTable(std::vector<TunedPlan> entries) : entries_(std::move(entries)) {
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    if (!is_before(entries_[i - 1], entries_[i])) {
      throw Error(ErrorCode::invalid_argument,
                  "tuned plans " + std::to_string(i - 1) + " and " + std::to_string(i) +
                      " are not in order, or speak for the same shape");
    }
  }
}

const TunedPlan* TuningTable::find(const Problem& problem, const GpuFacts& gpu) const {
  TunedPlan wanted;
  wanted.sm_count = gpu.sm_count;
  wanted.encoding = problem.encoding;
  wanted.rows = problem.rows;
  wanted.k = problem.k;
  wanted.m = problem.m;
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), wanted, is_before);
  if (found == entries_.end() || shape_key(*found) != shape_key(wanted)) return nullptr;
  const bool lowest =
      found == entries_.begin() || shape_key(*std::prev(found)) != shape_key(wanted);
  if (lowest && problem.m <= found->m / 2) return nullptr;
  return &*found;
}

const TuningTable& shipped_tuning_table() { return shipped().table; }
const std::vector<std::string>& shipped_tuning_errors() { return shipped().errors; }

}  // namespace slimgemm::plan
