// SPDX-License-Identifier: Apache-2.0
// Strict reading of numbers from text that a person typed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace slimgemm::lab {

/// `text` without the blanks, tabs and carriage returns around it.
std::string_view trimmed(std::string_view text);

/// `text` cut at every `separator`, each part trimmed; never empty.
std::vector<std::string_view> split(std::string_view text, char separator);

/// The finite decimal number that is all of `text`; nothing for any other text.
std::optional<double> parse_number(std::string_view text);

/// The decimal integer that is all of `text`; nothing for any other text.
std::optional<std::int64_t> parse_integer(std::string_view text);

/// "1,8,16" as m values. Throws Error(invalid_argument) that names the value: each must be 1 to
/// max_dimension, and there may be at most 64 of them.
std::vector<std::int64_t> parse_m_list(std::string_view text);

}  // namespace slimgemm::lab
