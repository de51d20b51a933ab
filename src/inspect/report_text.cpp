// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspection_report.hpp"

#include "format/layout.hpp"
#include "inspect/units.hpp"
#include "report/wrapped.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

namespace slimgemm::inspect {
namespace {

using report::wrapped;

constexpr std::size_t bar_columns = 40;

const char* explanation =
    "A BF16 weight has 16 bits: a sign, 8 of exponent, 7 of mantissa. Packed, its exponent takes 4 "
    "bits instead of 8, which tell 16 exponents apart: the window. Weights outside it (exceptions) "
    "are kept beside, with all their bits.";
const char* columns_explained =
    "bits: of a weight as packed, everything counted. window: magnitudes that 12 bits express. "
    "outside: share of the weights beyond it. entropy: the fewest bits that an exponent can take "
    "on average. above: bits over the least possible, which is 8 + entropy.";

std::string table_text(const Inspection& inspection) {
  const std::vector<TableRow> rows = table_rows(inspection);
  std::size_t name_columns = 6;
  std::size_t shape_columns = 5;
  std::vector<std::string> names;
  for (const TableRow& row : rows) {
    names.push_back(row.tensors == 1 ? row.name : fmt::format("{} ({})", row.name, row.tensors));
    name_columns = std::max(name_columns, names.back().size());
    shape_columns = std::max(shape_columns, shape_text(row.shape).size());
  }
  const auto line = [&](const std::string& name, const std::string& shape, const std::string& bits,
                        const std::string& window, const std::string& outside,
                        const std::string& entropy, const std::string& above) {
    return fmt::format("{:<{}}  {:>{}}  {:>5}  {:<18}  {:>9}  {:>7}  {:>5}\n", name, name_columns,
                       shape, shape_columns, bits, window, outside, entropy, above);
  };
  std::string text = line("tensor", "shape", "bits", "window", "outside", "entropy", "above");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const ExponentStatistics& e = rows[i].exponents;
    text += line(names[i], shape_text(rows[i].shape), fmt::format("{:.2f}", e.stored_bits()),
                 window_text(e), percent_text(e.exception_share()),
                 fmt::format("{:.2f}", rows[i].entropy()),
                 fmt::format("{:.2f}", rows[i].above_ideal()));
  }
  return text + '\n';
}

// Finds the row of a tensor: experts of one layer and shape that have a tensor each share one.
class RowFinder {
 public:
  // The row's place, which is `next` for a new row, and its name.
  std::pair<std::size_t, std::string> find(const ModelTensor& tensor, std::size_t next) {
    const auto& shape = tensor.original.shape;
    std::string name = checkpoint::printable(tensor.original.name);
    const std::size_t mark = name.find(".experts.");
    if (!tensor.is_expert || mark == std::string::npos || shape.size() != 2) return {next, name};
    const std::size_t number = mark + 9;
    const std::size_t end = name.find_first_not_of("0123456789", number);
    if (end != std::string::npos && end != number) name.replace(number, end - number, "*");
    return {rows_.emplace(name + shape_text(shape), next).first->second, name};
  }

 private:
  std::map<std::string, std::size_t> rows_;
};

std::string fp16_text(const Inspection& inspection) {
  const std::vector<Fp16Row> rows = fp16_rows(inspection);
  if (rows.empty()) return "";
  std::vector<std::string> names;
  std::size_t name_columns = 11;
  std::size_t shape_columns = 5;
  for (const Fp16Row& row : rows) {
    const std::uint64_t tensors = row.statistics.tensors;
    names.push_back(tensors == 1 ? row.name : fmt::format("{} ({})", row.name, tensors));
    name_columns = std::max(name_columns, names.back().size());
    shape_columns = std::max(shape_columns, shape_text(row.shape).size());
  }
  std::string text =
      fmt::format("{:<{}}  {:>{}}  {:>8}  {:>8}  {:>5}  {:>8}  {}\n", "FP16 tensor", name_columns,
                  "shape", shape_columns, "exponent", "mantissa", "least", "BF16", "with --fp16");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Fp16Statistics& s = rows[i].statistics;
    text += fmt::format("{:<{}}  {:>{}}  {:>8.2f}  {:>8.2f}  {:>5.2f}  {:>8}  {}\n", names[i],
                        name_columns, shape_text(rows[i].shape), shape_columns,
                        s.exponent_entropy(), s.mantissa_entropy(), s.ideal_bits(),
                        percent_text(s.bf16_share()), rows[i].with_option());
  }
  return text + '\n' + wrapped("", fp16_explanation(inspection)) + '\n';
}

std::string exponent_line(const ExponentStatistics& e, int exponent, double largest) {
  const std::uint64_t count = e.histogram[static_cast<std::size_t>(exponent)];
  const bool inside = exponent != 0 && exponent != 255 && exponent >= e.window_low &&
                      exponent < e.window_high + format::window_exponents;
  std::string magnitudes = fmt::format("{} .. {}", power_text(exponent), power_text(exponent + 1));
  if (exponent == 0) magnitudes = "zero or subnormal";
  if (exponent == 255) magnitudes = "Inf or NaN";
  const auto bar =
      static_cast<std::size_t>(std::lround(bar_columns * static_cast<double>(count) / largest));
  std::string line = fmt::format(
      "{:>8} {} {:<17} {:>15} {:>11}  {}", exponent, inside ? '|' : ' ', magnitudes,
      count_text(count), percent_text(static_cast<double>(count) / static_cast<double>(e.weights)),
      std::string(bar, '#'));
  line.erase(line.find_last_not_of(' ') + 1);
  return line + '\n';
}

// Exponents that do not occur are left out.
std::string exponents_text(const ExponentStatistics& e) {
  const auto largest =
      static_cast<double>(*std::max_element(e.histogram.begin(), e.histogram.end()));
  std::string text = "exponent  magnitudes                weights       share\n";
  int last = -1;
  for (int exponent = 0; exponent < 256; ++exponent) {
    if (e.histogram[static_cast<std::size_t>(exponent)] == 0) continue;
    if (last >= 0 && exponent != last + 1) text += "     ...\n";
    text += exponent_line(e, exponent, largest);
    last = exponent;
  }
  return text + "| marks the window: the exponents that 12 bits express.\n\n";
}

std::string summary_text(const Model& model, const Inspection& inspection) {
  const ExponentStatistics& total = inspection.total;
  std::string text;
  const auto out = std::back_inserter(text);
  constexpr const char* row = "{:<24} {:>12} {:>12}   {}\n";
  const auto before = static_cast<double>(inspection.bytes_before);
  fmt::format_to(out, row, "", "before", model.is_packed() ? "packed" : "if packed", "");
  fmt::format_to(out, row, "all tensors", bytes_text(inspection.bytes_before),
                 bytes_text(inspection.bytes_after),
                 percent_text(static_cast<double>(inspection.bytes_after) / before));
  fmt::format_to(out, row, "packed tensors", bytes_text(2 * total.weights),
                 bytes_text(total.packed_bytes),
                 fmt::format("{:.2f} bits a weight", total.stored_bits()));
  const TokenCost& token = inspection.token;
  fmt::format_to(out, row, fmt::format("a token on an {}", inspection.gpu.name),
                 time_text(token.us_before), time_text(token.us_after),
                 fmt::format("at best {:.2f} times as fast", token.us_before / token.us_after));
  return text + '\n';
}

std::string findings_text(const Inspection& inspection) {
  const ExponentStatistics& total = inspection.total;
  std::string text = wrapped("", ideal_sentence(total.stored_bits(), inspection.ideal_bits()));
  text += wrapped(
      "",
      fmt::format("Outside their window: {} of {} weights ({}); {} of them zeros or subnormals, "
                  "{} Inf or NaN. All come back bit for bit.",
                  count_text(total.exceptions), count_text(total.weights),
                  percent_text(total.exception_share()), count_text(total.zeros()),
                  count_text(total.nonfinite())));
  if (total.raw16_matrices > 0) {
    text += wrapped("", fmt::format("{} of {} matrices stay at 16 bits: more than 0.1 % of their "
                                    "weights lie outside every window.",
                                    count_text(total.raw16_matrices), count_text(total.matrices)));
  }
  return text;
}

std::string token_text(const Inspection& inspection) {
  const TokenCost& token = inspection.token;
  std::string text = wrapped(
      "", fmt::format("A token on an {}: the roofline, that is {} and {} of weights at {:g} TB/s; "
                      "no kernel can be faster.",
                      inspection.gpu.name, bytes_text(token.bytes_before),
                      bytes_text(token.bytes_after), inspection.gpu.bandwidth_tb_s));
  for (const std::string& assumption : token.assumptions) text += wrapped("  - ", assumption);
  return text;
}

std::string kept_text(const Inspection& inspection) {
  std::string text;
  for (const auto& [why, group] : kept_groups(inspection)) {
    text += wrapped("  - ", fmt::format("{} ({}): {}, such as {}", count_text(group.tensors),
                                        bytes_text(group.bytes), why, group.example));
  }
  return text.empty() ? text : "Tensors that stay as they are:\n" + text;
}

}  // namespace

double TableRow::entropy() const {
  return exponents.weights == 0 ? 0 : entropy_weights / static_cast<double>(exponents.weights);
}

std::vector<TableRow> table_rows(const Inspection& inspection) {
  std::vector<TableRow> rows;
  RowFinder finder;
  for (const MeasuredTensor& measured : inspection.measured) {
    const auto [at, name] = finder.find(*measured.tensor, rows.size());
    if (at == rows.size()) rows.push_back({name, 0, measured.tensor->original.shape, {}, 0});
    TableRow& row = rows[at];
    ++row.tensors;
    row.exponents.add(measured.exponents);
    row.entropy_weights +=
        measured.exponents.entropy() * static_cast<double>(measured.exponents.weights);
  }
  return rows;
}

std::string Fp16Row::with_option() const {
  const Fp16Statistics& s = statistics;
  if (s.packing_tensors == 0) return "stays at 16 bits";
  if (s.packing_tensors == s.tensors) return fmt::format("{:.2f} bits", s.fp16_option_bits());
  return fmt::format("{:.2f} bits, {} of {} packed", s.fp16_option_bits(), s.packing_tensors,
                     s.tensors);
}

std::vector<Fp16Row> fp16_rows(const Inspection& inspection) {
  std::vector<Fp16Row> rows;
  RowFinder finder;
  for (const MeasuredFp16& measured : inspection.fp16) {
    const auto [at, name] = finder.find(*measured.tensor, rows.size());
    if (at == rows.size()) rows.push_back({name, measured.tensor->original.shape, {}});
    rows[at].statistics.add(measured.statistics);
  }
  return rows;
}

std::string fp16_explanation(const Inspection& inspection) {
  Fp16Statistics total;
  for (const MeasuredFp16& measured : inspection.fp16) total.add(measured.statistics);
  return fmt::format(
      "An FP16 weight has a sign, 5 bits of exponent and 10 of mantissa. exponent, mantissa: "
      "entropy, the fewest bits that each can take on average. least: with the sign, what no "
      "lossless code of single exponents and mantissas can beat. BF16: share of the weights that "
      "are BF16 numbers, too. Pack keeps FP16 at 16 bits; with --fp16 it packs tensors whose every "
      "weight is a BF16 number: {} of {}, {} -> {}.",
      count_text(total.packing_tensors), count_text(total.tensors), bytes_text(2 * total.weights),
      bytes_text(total.packed_bytes));
}

std::map<std::string, KeptGroup> kept_groups(const Inspection& inspection) {
  std::map<std::string, KeptGroup> groups;
  for (const OtherTensor& other : inspection.others) {
    KeptGroup& group = groups[other.why];
    if (group.tensors == 0) group.example = checkpoint::printable(other.tensor->original.name);
    ++group.tensors;
    group.bytes += other.tensor->stored.size_bytes();
  }
  return groups;
}

std::string window_text(const ExponentStatistics& e) {
  const std::string text = fmt::format("{} .. {}", power_text(std::max(e.window_low, 1)),
                                       power_text(e.window_high + format::window_exponents));
  return e.window_low == e.window_high ? text : "in " + text;
}

std::string ideal_sentence(double stored_bits, double ideal_bits) {
  return fmt::format(
      "{:.2f} bits are {:.2f} above {:.2f}, the least that a code of single exponents can reach: 8 "
      "(sign and mantissa) + {:.2f} (entropy of the exponent).",
      stored_bits, stored_bits - ideal_bits, ideal_bits, ideal_bits - other_bits);
}

std::string inspection_text(const Model& model, const Inspection& inspection, bool single) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: {} tensors in {} file{}{}\n\n", model.path(), model.tensors().size(),
                 model.file_count(), model.file_count() == 1 ? "" : "s",
                 model.is_packed() ? ", packed" : "");
  if (inspection.measured.empty()) {
    if (inspection.fp16.empty()) text += wrapped("", "There is nothing to pack.");
    return text + fp16_text(inspection) + kept_text(inspection);
  }
  const ModelTensor& first = *inspection.measured.front().tensor;
  text += wrapped("", explanation) + '\n' + wrapped("", columns_explained) + '\n' +
          table_text(inspection);
  if (single) {
    text += exponents_text(inspection.total);
    text += findings_text(inspection);
    if (!first.packed && !first.selection.packed) {
      text += wrapped("", fmt::format("pack keeps this tensor as it is ({}); bits and window say "
                                      "what packing it would bring.",
                                      first.selection.why));
    }
    return text;
  }
  text += summary_text(model, inspection) + findings_text(inspection) + token_text(inspection);
  if (!inspection.fp16.empty()) text += '\n' + fp16_text(inspection);
  return text + kept_text(inspection);
}

}  // namespace slimgemm::inspect
