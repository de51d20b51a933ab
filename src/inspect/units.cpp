// SPDX-License-Identifier: Apache-2.0
#include "inspect/units.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace slimgemm::inspect {
namespace {

constexpr int exponent_bias = 127;

}  // namespace

std::string bytes_text(double bytes, int decimals) {
  if (bytes >= 1e9) return fmt::format("{:.{}f} GB", bytes / 1e9, decimals);
  if (bytes >= 1e6) return fmt::format("{:.{}f} MB", bytes / 1e6, decimals);
  if (bytes >= 1e4) return fmt::format("{:.1f} KB", bytes / 1e3);
  return fmt::format("{:.0f} bytes", bytes);
}

std::string bytes_text(std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

std::string count_text(std::uint64_t count) {
  std::string digits = fmt::format("{}", count);
  for (std::size_t i = digits.size(); i > 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return shape.empty() ? "one value" : fmt::format("{}", fmt::join(shape, " x "));
}

std::string percent_text(double share) {
  if (share == 0) return "0 %";
  if (share < 1e-9) return "< 0.0000001 %";
  // Three significant digits, never as 1e-05.
  int decimals = 0;
  for (double value = share * 100; value < 100 && decimals < 10; value *= 10) ++decimals;
  std::string text = fmt::format("{:.{}f}", share * 100, decimals);
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  return text + " %";
}

std::string power_text(int exponent) {
  return exponent == 0 ? "0" : fmt::format("2^{}", exponent - exponent_bias);
}

std::string time_text(double us) {
  if (us >= 1000) return fmt::format("{:.3g} ms", us / 1000);
  return us >= 1 ? fmt::format("{:.3g} us", us) : fmt::format("{:.2g} us", us);
}

}  // namespace slimgemm::inspect
