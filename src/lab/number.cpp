// SPDX-License-Identifier: Apache-2.0
#include "lab/number.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <slimgemm/error.hpp>
#include <slimgemm/types.hpp>

namespace slimgemm::lab {
namespace {

constexpr std::string_view blanks = " \t\r";
constexpr std::size_t m_values_max = 64;

template <typename Value>
std::optional<Value> parse_all(std::string_view text) {
  Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    parts.push_back(trimmed(text.substr(0, end)));
    text.remove_prefix(end + 1);
  }
  parts.push_back(trimmed(text));
  return parts;
}

std::optional<double> parse_number(std::string_view text) {
  const std::optional<double> value = parse_all<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_all<std::int64_t>(text);
}

std::vector<std::int64_t> parse_m_list(std::string_view text) {
  std::vector<std::int64_t> values;
  for (const std::string_view part : split(text, ',')) {
    const std::optional<std::int64_t> m = parse_integer(part);
    if (!m || *m < 1 || *m > max_dimension) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("m is '{}'; allowed: integers from 1 to {}, separated by commas, "
                              "for example 1,8,16",
                              part, max_dimension));
    }
    values.push_back(*m);
  }
  if (values.size() > m_values_max) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} values of m; at most {} are allowed in one call", values.size(),
                            m_values_max));
  }
  return values;
}

}  // namespace slimgemm::lab
