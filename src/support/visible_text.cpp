// SPDX-License-Identifier: Apache-2.0
#include "support/visible_text.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

namespace slimgemm {
namespace {

struct CodePoint {
  std::uint32_t value = 0;
  std::size_t bytes = 0;  // 0: not UTF-8
};

CodePoint first_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  std::uint32_t value = lead & (0x7FU >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    value = value << 6U | (byte(i) & 0x3FU);
  }
  constexpr std::array<std::uint32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < least[bytes] || value > 0x10FFFF || surrogate) return {};
  return {value, bytes};
}

bool is_hidden(std::uint32_t value) {
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 9> ranges{{{0, 0x1F},
                                                                           {0x7F, 0x9F},
                                                                           {0x61C, 0x61C},
                                                                           {0x180E, 0x180E},
                                                                           {0x200B, 0x200F},
                                                                           {0x2028, 0x202E},
                                                                           {0x2060, 0x206F},
                                                                           {0xFEFF, 0xFEFF},
                                                                           {0xE0000, 0xE0FFF}}};
  return std::any_of(ranges.begin(), ranges.end(), [&](const auto& range) {
    return value >= range.first && value <= range.second;
  });
}

}  // namespace

std::string visible_text(std::string_view text, std::size_t bytes_max, bool keep_lines) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string visible;
  std::size_t i = 0;
  while (i < text.size()) {
    const CodePoint next = first_code_point(text.substr(i));
    const std::size_t bytes = std::max<std::size_t>(next.bytes, 1);
    if (i + bytes > bytes_max) break;
    const std::string_view piece = text.substr(i, bytes);
    const bool kept_line = keep_lines && piece == "\n";
    if (kept_line || (next.bytes > 0 && !is_hidden(next.value))) {
      visible += piece;
    } else {
      for (const char c : piece) {
        const auto value = static_cast<std::uint8_t>(c);
        visible += {'\\', 'x', digits[value >> 4U], digits[value & 0xFU]};
      }
    }
    i += bytes;
  }
  if (i < text.size()) visible += "... (" + std::to_string(text.size()) + " bytes)";
  return visible;
}

}  // namespace slimgemm
