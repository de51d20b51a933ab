// SPDX-License-Identifier: Apache-2.0
#include "codec/exponents.hpp"

#include "codec/row_tiles.hpp"
#include "codec/sections.hpp"
#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string>

namespace slimgemm {
namespace {

// Adds the weights' exponents to `total`. Neighbours often have the same exponent: each of four has
// a table of its own, so that no count waits for the one before.
void add_exponents(std::span<const std::uint16_t> w, ExponentHistogram& total) {
  std::array<ExponentHistogram, 4> tables{};
  std::size_t i = 0;
  for (; i + tables.size() <= w.size(); i += tables.size()) {
    std::uint64_t four = 0;
    std::memcpy(&four, w.data() + i, sizeof(four));
    ++tables[0][four >> 7 & 0xFF];
    ++tables[1][four >> 23 & 0xFF];
    ++tables[2][four >> 39 & 0xFF];
    ++tables[3][four >> 55 & 0xFF];
  }
  for (; i < w.size(); ++i) ++tables[0][w[i] >> 7 & 0xFF];
  for (const ExponentHistogram& table : tables) {
    for (std::size_t e = 0; e < total.size(); ++e) total[e] += table[e];
  }
}

}  // namespace

ExponentHistogram count_exponents(std::span<const std::uint16_t> w, int threads) {
  constexpr std::int64_t grain = std::int64_t{1} << 18;
  ExponentHistogram total{};
  std::mutex mutex;
  parallel_for(static_cast<std::int64_t>(w.size()), grain, threads,
               [&](std::int64_t begin, std::int64_t end) {
                 ExponentHistogram part{};
                 add_exponents(w.subspan(static_cast<std::size_t>(begin),
                                         static_cast<std::size_t>(end - begin)),
                               part);
                 const std::lock_guard lock(mutex);
                 for (std::size_t e = 0; e < total.size(); ++e) total[e] += part[e];
               });
  return total;
}

std::uint64_t count_exceptions(std::span<const std::uint16_t> w, int window_base) {
  // Without the sign, the window is one range of 16-bit integers.
  const auto first = static_cast<std::uint16_t>(std::max(window_base, 1) << 8);
  const auto size =
      static_cast<std::uint16_t>(((window_base + format::window_exponents) << 8) - first);
  constexpr std::size_t block = 4096;  // its count fits 16 bits
  std::uint64_t total = 0;
  for (std::size_t begin = 0; begin < w.size(); begin += block) {
    std::uint16_t count = 0;
    for (const std::uint16_t bits : w.subspan(begin, std::min(block, w.size() - begin))) {
      const auto offset = static_cast<std::uint16_t>(static_cast<std::uint16_t>(bits << 1) - first);
      count = static_cast<std::uint16_t>(count + (offset >= size ? 1 : 0));
    }
    total += count;
  }
  return total;
}

std::uint64_t count_groups(std::span<const std::uint16_t> w, std::size_t k, int window_base,
                           int threads, std::uint32_t* extra_begin) {
  const std::size_t n = w.size() / k;
  codec::for_row_tiles(n, k, threads, [&](std::size_t r) {
    const std::size_t begin = r * format::tile_rows * k;
    const std::size_t size = std::min<std::size_t>(format::tile_rows * k, w.size() - begin);
    const std::uint64_t exceptions = count_exceptions(w.subspan(begin, size), window_base);
    extra_begin[r + 1] = static_cast<std::uint32_t>(extra_groups(exceptions));
  });
  return accumulate_extra_groups(extra_begin, format::tiles_along(n, format::tile_rows));
}

PackForecast forecast_pack(std::span<const std::uint16_t> w, std::int64_t n, std::int64_t k,
                           const PackOptions& options) {
  check_pack_arguments(n, k, options);
  const auto rows = static_cast<std::uint64_t>(n);
  const auto columns = static_cast<std::uint64_t>(k);
  if (w.size() != rows * columns) {
    throw Error(ErrorCode::invalid_argument, "w has " + std::to_string(w.size()) +
                                                 " elements: must be n * k = " + std::to_string(n) +
                                                 " * " + std::to_string(k));
  }
  PackForecast forecast;
  forecast.exponents = count_exponents(w, options.threads);
  forecast.choice = choose_encoding(forecast.exponents, options.max_exception_rate);
  Contents contents{forecast.choice.encoding, rows, columns};
  if (contents.encoding == Encoding::split12) {
    const std::uint64_t row_tiles = format::tiles_along(rows, format::tile_rows);
    AlignedBuffer extra((row_tiles + 1) * sizeof(std::uint32_t));
    contents.group_count = count_groups(w, columns, forecast.choice.window_base, options.threads,
                                        reinterpret_cast<std::uint32_t*>(extra.data()));
    if (contents.group_count > max_group_count) {
      contents = {Encoding::raw16, rows, columns};
      forecast.choice.encoding = Encoding::raw16;
      forecast.choice.window_base = 0;
      forecast.choice.exception_count = 0;
    }
  }
  forecast.total_bytes = make_header(contents).total_bytes;
  return forecast;
}

}  // namespace slimgemm
