// SPDX-License-Identifier: Apache-2.0
#include "lab/score.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace slimgemm::lab {
namespace {

constexpr double bar_cells = 24;

std::string without_trailing_blanks(const std::string& line) {
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

/// A line of the load table or of the shape table.
struct Row {
  std::string name;
  TimePair time;
  Floors floors;
};

/// Tables of times with the distance to the floor that the weights' bits allow.
class Table {
 public:
  explicit Table(double weight_bits)
      : packed_(weight_bits != 16),
        packed_label_(fmt::format("{:g}-bit floor", weight_bits)),
        ratio_label_(fmt::format("ours/{:g}-bit", weight_bits)) {}

  [[nodiscard]] std::string render(const char* what, const std::vector<Row>& rows) const {
    double longest = 0;
    for (const Row& row : rows) {
      longest = std::max(longest, above_us(row));
    }
    std::string text =
        fmt::format("{:<20} {:>10} {:>10} {:>8} {:>9} {:>11}{}  {}\n", what, "baseline", "ours",
                    "speedup", "floor", "ours/floor",
                    packed_ ? fmt::format(" {:>12} {:>12}", packed_label_, ratio_label_) : "",
                    "above the floor");
    for (const Row& row : rows) {
      const double cells = longest > 0 ? bar_cells * above_us(row) / longest : 0;
      const std::string bar(static_cast<std::size_t>(std::max(0.0, std::round(cells))), '#');
      const std::string line =
          fmt::format("{:<20} {:>10.2f} {:>10.2f} {:>8.3f} {:>9.2f} {:>11.2f}{}  {:>6.2f} {}",
                      row.name, row.time.baseline_us, row.time.ours_us, row.time.speedup(),
                      row.floors.dense_us, row.time.ours_us / row.floors.dense_us,
                      packed_ ? fmt::format(" {:>12.2f} {:>12.2f}", row.floors.packed_us,
                                            row.time.ours_us / row.floors.packed_us)
                              : "",
                      above_us(row), bar);
      text += without_trailing_blanks(line) + '\n';
    }
    return text;
  }

  [[nodiscard]] double above_us(const Row& row) const {
    return row.time.ours_us - (packed_ ? row.floors.packed_us : row.floors.dense_us);
  }

 private:
  bool packed_;
  std::string packed_label_;
  std::string ratio_label_;
};

std::string fixed(int decimals, double value) { return fmt::format("{:.{}f}", value, decimals); }

/// A rate a second: whole, or with two decimals where it is small.
std::string rate(double value) { return fixed(value < 10 ? 2 : 0, value); }

std::string score_line(const Score& score) {
  if (!score.score) {
    return "Score: none, for no load has all five layers.\n";
  }
  if (score.whole_loads < static_cast<int>(load_count)) {
    return fmt::format("Geometric mean of {} of the 6 speedups: {:.3f} (the score needs all 6)\n",
                       score.whole_loads, *score.score);
  }
  return fmt::format("Score: {:.3f} (geometric mean of the 6 speedups)\n", *score.score);
}

std::string step_row(const std::array<std::string, 9>& cells) {
  return without_trailing_blanks(fmt::format(
             "{:<12} {:>4} {:>9} {:>8} {:>8} {:>10} {:>8} {:>10} {:>8}", cells[0], cells[1],
             cells[2], cells[3], cells[4], cells[5], cells[6], cells[7], cells[8])) +
         '\n';
}

std::string serving_step(const Score& score) {
  std::string text = fmt::format(
      "A serving step runs each of the five shapes {} times. In these layers alone a step then "
      "spends\n"
      "the ms below, so no more steps a second are possible, nor more tokens (m a step; in a "
      "verify\n"
      "load only if every draft token is accepted).\n\n",
      calls_a_step);
  text += step_row({"", "", "ms a step", "", "", "steps/s", "", "tokens/s", ""});
  text +=
      step_row({"load", "m", "baseline", "ours", "saved", "baseline", "ours", "baseline", "ours"});
  for (const LoadScore& load : score.loads) {
    if (!load.whole) {
      continue;
    }
    const double baseline_ms = load.baseline_step_ms();
    const double ours_ms = load.ours_step_ms();
    const auto tokens = static_cast<double>(load.load.m);
    text += step_row({std::string(load.load.name), std::to_string(load.load.m),
                      fixed(3, baseline_ms), fixed(3, ours_ms), fixed(3, baseline_ms - ours_ms),
                      rate(1e3 / baseline_ms), rate(1e3 / ours_ms),
                      rate(tokens * 1e3 / baseline_ms), rate(tokens * 1e3 / ours_ms)});
  }
  return text;
}

std::string furthest(const std::vector<Row>& shapes, const Table& table) {
  const auto row =
      std::max_element(shapes.begin(), shapes.end(), [&](const Row& left, const Row& right) {
        return table.above_us(left) < table.above_us(right);
      });
  return fmt::format("Most time above the floor: {}, {:.2f} us.\n", row->name,
                     table.above_us(*row));
}

}  // namespace

std::string score_text(const Score& score, const TimesTable& table, double weight_bits) {
  std::vector<Row> loads;
  std::vector<Row> shapes;
  for (const LoadScore& load : score.loads) {
    std::string name(load.load.name);
    if (!load.whole) {
      name += fmt::format(" ({} of 5)", load.shapes.size());
    }
    loads.push_back({name, load.time, load.floors});
    for (const ShapeScore& shape : load.shapes) {
      shapes.push_back({fmt::format("{} {}", load.load.name, judge::info(shape.layer).name),
                        shape.time, shape.floors});
    }
  }
  const Table layout(weight_bits);
  std::string text = fmt::format(
      "{}\nTimes in microseconds; floor: an H200's, at 16 bits a weight "
      "(router 32).\n\n",
      table.source);
  text += layout.render("load", loads) + '\n' + score_line(score);
  if (!shapes.empty()) {
    text += '\n' + layout.render("shape", shapes) + '\n' + furthest(shapes, layout);
  }
  if (score.whole_loads > 0) {
    text += '\n' + serving_step(score);
  }
  return text;
}

}  // namespace slimgemm::lab
