// SPDX-License-Identifier: Apache-2.0
#include "codec/window.hpp"

#include "format/layout.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace slimgemm {
namespace {

void check_dimension(const char* name, std::int64_t value) {
  if (value >= 1 && value <= max_dimension) return;
  throw Error(ErrorCode::invalid_argument, std::string(name) + " = " + std::to_string(value) +
                                               ": must be 1 to " + std::to_string(max_dimension));
}

}  // namespace

Window best_window(const ExponentHistogram& histogram) {
  Window best;
  for (int base = 0; base <= format::max_window_base; base += 2) {
    const int first = std::max(base, 1);
    const int end = base + format::window_exponents;
    const std::uint64_t covered =
        std::accumulate(histogram.begin() + first, histogram.begin() + end, std::uint64_t{0});
    if (covered >= best.covered) best = {base, covered};
  }
  return best;
}

Bf16Encoding choose_encoding(const ExponentHistogram& histogram, double max_exception_rate) {
  const std::uint64_t total = std::accumulate(histogram.begin(), histogram.end(), std::uint64_t{0});
  const Window window = best_window(histogram);
  Bf16Encoding choice;
  choice.has_nonfinite = histogram[255] != 0;
  const std::uint64_t exceptions = total - window.covered;
  if (static_cast<double>(exceptions) > max_exception_rate * static_cast<double>(total)) {
    return choice;
  }
  choice.encoding = Encoding::split12;
  choice.window_base = window.base;
  choice.exception_count = exceptions;
  return choice;
}

void check_pack_arguments(std::int64_t n, std::int64_t k, const PackOptions& options) {
  check_dimension("n", n);
  check_dimension("k", k);
  if (!(options.max_exception_rate >= 0 && options.max_exception_rate <= 1)) {
    throw Error(
        ErrorCode::invalid_argument,
        "max_exception_rate = " + std::to_string(options.max_exception_rate) + ": must be 0 to 1");
  }
}

std::uint64_t accumulate_extra_groups(std::uint32_t* extra_begin, std::uint64_t row_tiles) {
  std::uint64_t sum = 0;
  extra_begin[0] = 0;
  for (std::uint64_t r = 1; r <= row_tiles; ++r) {
    sum += extra_begin[r];
    extra_begin[r] = static_cast<std::uint32_t>(sum);
  }
  return row_tiles + sum;
}

}  // namespace slimgemm
