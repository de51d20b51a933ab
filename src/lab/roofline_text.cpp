// SPDX-License-Identifier: Apache-2.0
#include "lab/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace slimgemm::lab {
namespace {

bool same_n(const std::vector<Matmul>& matmuls) {
  return std::all_of(matmuls.begin(), matmuls.end(),
                     [&](const Matmul& matmul) { return matmul.n == matmuls.front().n; });
}

std::string where_math_binds(const Matmul& matmul, const Gpu& gpu) {
  const std::optional<std::int64_t> m = math_bound_from_m(matmul, gpu);
  const std::string shape = fmt::format("{} x {}", matmul.n, matmul.k);
  return m ? fmt::format("The math binds {} from m = {} on.\n", shape, *m)
           : fmt::format("Memory binds {} at every m.\n", shape);
}

}  // namespace

const Matmul& widest_matmul(const RooflineQuery& query) {
  return *std::max_element(
      query.matmuls.begin(), query.matmuls.end(),
      [](const Matmul& left, const Matmul& right) { return left.n < right.n; });
}

std::string short_number(double value) {
  return value < 1 ? fmt::format("{:.3g}", value) : fmt::format("{:.2f}", value);
}

std::string roofline_text(const RooflineQuery& query) {
  const Matmul& widest = widest_matmul(query);
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}{}N {}, K {}; bits an element: weights {:g}, x 16, out {:g}\n",
                 query.title, query.title.empty() ? "" : ": ", widest.n, widest.k,
                 widest.weight_bits, widest.out_bits);
  fmt::format_to(out, "{}: {:g} TB/s, {:g} TFLOP/s, ridge {:.0f} FLOP/byte\n\n", query.gpu.name,
                 query.gpu.bandwidth_tb_s, query.gpu.peak_tflop_s, query.gpu.ridge());
  constexpr const char* row = "{:>6} {:>8} {:>10} {:>10} {:>10} {:>10}  {:<14} {:>10}\n";
  fmt::format_to(out, row, "m", "N", "MB", "GFLOP", "bytes us", "math us", "bound", "FLOP/byte");
  for (const Matmul& matmul : query.matmuls) {
    const Roofline line = roofline(matmul, query.gpu);
    const char* bound = line.binds() == Term::memory ? "memory" : "math";
    fmt::format_to(out, row, matmul.m, matmul.n, short_number(line.bytes / 1e6),
                   short_number(line.flops / 1e9), short_number(line.memory_us),
                   short_number(line.math_us), fmt::format("{} {:.1f}x", bound, line.margin()),
                   fmt::format("{:.1f}", line.flop_per_byte()));
  }
  text += "\n" + where_math_binds(widest, query.gpu);
  if (!same_n(query.matmuls)) {
    text += "Where N is smaller, only that slice of the layer is computed.\n";
  }
  return text;
}

}  // namespace slimgemm::lab
