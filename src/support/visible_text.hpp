// SPDX-License-Identifier: Apache-2.0
// Text from outside, fit for a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace slimgemm {

/// The text with all that could steer a terminal or mislead a reader written as \xNN, byte by byte:
/// control characters (C0, DEL and C1), marks of invisible width or of the direction of writing
/// (U+061C, U+180E, U+200B to U+200F, U+2028 to U+202E, U+2060 to U+206F, U+FEFF), tags
/// (U+E0000 to U+E0FFF), and bytes that are not UTF-8. Line ends stay where `keep_lines` is set.
/// Longer texts than `bytes_max` are cut, and their length said.
std::string visible_text(std::string_view text, std::size_t bytes_max = std::string_view::npos,
                         bool keep_lines = false);

}  // namespace slimgemm
