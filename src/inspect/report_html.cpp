// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspection_report.hpp"

#include "format/layout.hpp"
#include "inspect/units.hpp"
#include "report/bar_chart.hpp"
#include "report/column_chart.hpp"
#include "report/html_page.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace slimgemm::inspect {
namespace {

using report::Column;
using report::ColumnChart;
using report::escape_html;

constexpr int inside_series = 0;
constexpr int outside_series = 2;
constexpr int last_exponent = 254;
constexpr int label_every = 4;
constexpr double share_low_max = 1e-3;

// "2^-17" with a raised exponent.
std::string raised(const std::string& text) {
  constexpr std::array<const char*, 10> digits{"\u2070", "\u00B9", "\u00B2", "\u00B3", "\u2074",
                                               "\u2075", "\u2076", "\u2077", "\u2078", "\u2079"};
  std::string result;
  bool up = false;
  for (const char c : text) {
    if (c == '^') {
      up = true;
    } else if (up && c == '-') {
      result += "\u207B";
    } else if (up && c >= '0' && c <= '9') {
      result += digits[static_cast<std::size_t>(c - '0')];
    } else {
      up = false;
      result += c;
    }
  }
  return result;
}

std::string card(const std::string& title, const std::string& caption, const std::string& drawing) {
  return fmt::format("<figure class=\"card\"><h3>{}</h3><figcaption>{}</figcaption>{}</figure>\n",
                     escape_html(title), escape_html(caption), drawing);
}

std::string share_tip(const std::string& what, std::uint64_t count, std::uint64_t total) {
  return fmt::format("{}: {} weights, {}", what, count_text(count),
                     percent_text(static_cast<double>(count) / static_cast<double>(total)));
}

/// The columns of an axis that shows the exponents that occur and the whole window.
struct Range {
  std::size_t first;
  std::size_t end;
};

template <class Histogram>
Range range_of(const Histogram& histogram, std::size_t first, std::size_t end,
               std::size_t window_first, std::size_t window_end) {
  while (first < window_first && histogram[first] == 0) ++first;
  while (end > window_end && histogram[end - 1] == 0) --end;
  return {std::min(first, window_first), std::max(end, window_end)};
}

void add_special(ColumnChart& chart, std::uint64_t count, std::uint64_t total, const char* label,
                 const char* tip) {
  if (count == 0) return;
  Column column;
  column.value = static_cast<double>(count) / static_cast<double>(total);
  column.series = outside_series;
  column.label = label;
  column.tip = share_tip(tip, count, total);
  chart.columns.push_back(column);
  chart.columns.emplace_back();  // room beside the neighbours
}

/// The histogram by magnitude. The window is that of the tensor; several windows, from the lowest
/// to the highest one, get no shade.
ColumnChart magnitude_chart(const ExponentStatistics& e) {
  const auto window_first = static_cast<std::size_t>(std::max(e.window_low, 1));
  const auto window_end = std::min<std::size_t>(
      static_cast<std::size_t>(e.window_high) + format::window_exponents, last_exponent + 1);
  const Range range = range_of(e.histogram, 1, last_exponent + 1, window_first, window_end);
  ColumnChart chart;
  chart.title = "Share of the weights by magnitude";
  chart.x_title = "magnitude; a column is one exponent";
  add_special(chart, e.zeros(), e.weights, "0", "zero or subnormal");
  const std::size_t before = chart.columns.size();
  for (std::size_t i = range.first; i < range.end; ++i) {
    Column column;
    column.value = 100 * static_cast<double>(e.histogram[i]) / static_cast<double>(e.weights);
    column.series = i >= window_first && i < window_end ? inside_series : outside_series;
    const int exponent = static_cast<int>(i);
    column.tip =
        share_tip(raised(fmt::format("{} to {}", power_text(exponent), power_text(exponent + 1))),
                  e.histogram[i], e.weights);
    if (exponent % label_every == 3) column.label = raised(power_text(exponent));
    chart.columns.push_back(std::move(column));
  }
  if (before > 0) chart.columns[0].value *= 100;  // this axis is in percent
  if (e.window_low == e.window_high) {
    chart.shade = report::Shade{before + window_first - range.first,
                                before + window_end - range.first, "window"};
  } else {
    chart.shade =
        report::Shade{before + window_first - range.first, before + window_end - range.first,
                      "from the lowest window to the highest"};
  }
  return chart;
}

/// Exponents counted from the first one of their matrix's own window, so that the shade is exact
/// for any number of matrices; logarithmic, so that rare weights are seen.
ColumnChart relative_chart(const ExponentStatistics& e) {
  const std::size_t window_end = relative_zero + format::window_exponents;
  const Range range = range_of(e.relative, 0, e.relative.size(), relative_zero, window_end);
  ColumnChart chart;
  chart.title = "Share of the weights by distance from their window";
  chart.x_title = "exponents above the first one of the matrix's window";
  chart.logarithmic = true;
  double smallest = share_low_max;
  for (const std::uint64_t count : e.relative) {
    if (count == 0) continue;
    smallest = std::min(smallest, static_cast<double>(count) / static_cast<double>(e.weights));
  }
  chart.low = std::pow(10.0, std::floor(std::log10(smallest)) - 1);
  add_special(chart, e.zeros(), e.weights, "0", "zero or subnormal");
  const std::size_t before = chart.columns.size();
  for (std::size_t i = range.first; i < range.end; ++i) {
    Column column;
    column.value = static_cast<double>(e.relative[i]) / static_cast<double>(e.weights);
    column.series = i >= relative_zero && i < window_end ? inside_series : outside_series;
    const int distance = static_cast<int>(i) - static_cast<int>(relative_zero);
    column.tip = share_tip(fmt::format("{:+}", distance), e.relative[i], e.weights);
    if (distance % label_every == 0) column.label = fmt::format("{}", distance);
    chart.columns.push_back(std::move(column));
  }
  chart.shade = report::Shade{before + relative_zero - range.first,
                              before + window_end - range.first, "window: 12 bits"};
  return chart;
}

ColumnChart layer_chart(const Inspection& inspection) {
  ColumnChart chart;
  chart.title = "Bits a weight by layer";
  chart.x_title = "layer";
  const std::size_t every = inspection.layers.size() > 24  ? 8
                            : inspection.layers.size() > 8 ? 4
                                                           : 1;
  std::size_t index = 0;
  for (const auto& [number, layer] : inspection.layers) {
    Column column;
    column.value = layer.stored_bits();
    column.dot = layer.ideal_bits();
    column.tip = fmt::format("layer {}: {:.3f} bits a weight, least possible {:.3f}", number,
                             layer.stored_bits(), layer.ideal_bits());
    if (index++ % every == 0) column.label = fmt::format("{}", number);
    chart.columns.push_back(std::move(column));
  }
  chart.levels = {{16, "BF16: 16 bits"}};
  return chart;
}

std::string before_after(const Inspection& inspection) {
  const bool giga = inspection.bytes_before >= 1'000'000'000;
  const double unit = giga ? 1e9 : 1e6;
  report::BarChart chart;
  chart.title = "Bytes before and after packing";
  chart.label_width = 110;
  const TokenCost& token = inspection.token;
  chart.groups = {{giga ? "all tensors, GB" : "all tensors, MB",
                   {static_cast<double>(inspection.bytes_before) / unit,
                    static_cast<double>(inspection.bytes_after) / unit}},
                  {giga ? "a token reads, GB" : "a token reads, MB",
                   {token.bytes_before / unit, token.bytes_after / unit}}};
  return report::draw(chart);
}

std::string facts_html(const Model& model, const Inspection& inspection, bool single) {
  const ExponentStatistics& total = inspection.total;
  std::string html = fmt::format(
      "<p class=\"score\">{:.2f} bits</p><p class=\"soft\">a weight in the packed tensors, in "
      "place "
      "of 16; every weight comes back bit for bit</p>\n",
      total.stored_bits());
  const std::string what =
      single ? std::string("This tensor")
             : fmt::format("{} tensors in {} file{}", model.tensors().size(), model.file_count(),
                           model.file_count() == 1 ? "" : "s");
  html +=
      fmt::format("<p>{}: {} before, {} {}. {}</p>\n", what, bytes_text(inspection.bytes_before),
                  bytes_text(inspection.bytes_after), model.is_packed() ? "packed" : "if packed",
                  escape_html(ideal_sentence(total.stored_bits(), inspection.ideal_bits())));
  if (total.raw16_matrices > 0) {
    html += fmt::format(
        "<p>{} of {} matrices stay at 16 bits: more than 0.1 % of their weights lie "
        "outside every window.</p>\n",
        count_text(total.raw16_matrices), count_text(total.matrices));
  }
  return html;
}

std::string table_html(const Inspection& inspection) {
  report::HtmlTable table(
      {"tensor", "shape", "bits", "window", "outside", "exceptions", "entropy", "least", "above"});
  for (const TableRow& row : table_rows(inspection)) {
    const ExponentStatistics& e = row.exponents;
    table.add(
        {escape_html(row.tensors == 1 ? row.name : fmt::format("{} ({})", row.name, row.tensors)),
         shape_text(row.shape), fmt::format("{:.3f}", e.stored_bits()), raised(window_text(e)),
         percent_text(e.exception_share()), count_text(e.exceptions),
         fmt::format("{:.3f}", row.entropy()), fmt::format("{:.3f}", other_bits + row.entropy()),
         fmt::format("{:.3f}", row.above_ideal())});
  }
  return "<h2>Tensors</h2>\n<p class=\"soft\">bits: of a weight as packed, everything counted. "
         "window: magnitudes that 12 bits express; outside and exceptions: weights beyond it, kept "
         "beside with all their bits. entropy: the fewest bits that an exponent can take on "
         "average; least: 8 + entropy; above: bits over that.</p>\n" +
         table.finish();
}

std::string fp16_html(const Inspection& inspection) {
  if (inspection.fp16.empty()) return "";
  report::HtmlTable table(
      {"FP16 tensor", "shape", "exponent", "mantissa", "least", "BF16", "with --fp16"});
  for (const Fp16Row& row : fp16_rows(inspection)) {
    const Fp16Statistics& s = row.statistics;
    table.add({escape_html(row.name), shape_text(row.shape),
               fmt::format("{:.3f}", s.exponent_entropy()),
               fmt::format("{:.3f}", s.mantissa_entropy()), fmt::format("{:.3f}", s.ideal_bits()),
               percent_text(s.bf16_share()), row.with_option()});
  }
  return "<h2>FP16 tensors</h2>\n<p class=\"soft\">" + escape_html(fp16_explanation(inspection)) +
         "</p>\n" + table.finish();
}

std::string kept_html(const Inspection& inspection) {
  report::HtmlTable table({"why", "tensors", "bytes", "such as"});
  const auto groups = kept_groups(inspection);
  for (const auto& [why, group] : groups) {
    table.add({escape_html(why), count_text(group.tensors), bytes_text(group.bytes),
               escape_html(group.example)});
  }
  return groups.empty() ? std::string()
                        : "<h2>Tensors that stay as they are</h2>\n" + table.finish();
}

std::string token_html(const Inspection& inspection) {
  const TokenCost& token = inspection.token;
  std::string html = fmt::format(
      "<h2>What a token costs</h2>\n<p>To compute one token, a GPU reads every weight of the "
      "linear "
      "layers once. At the {:g} TB/s of an {} that takes at least {} before packing and {} after: "
      "at best {:.2f} times as fast. This is the roofline, which no kernel beats.</p>\n<ul "
      "class=\"soft\">",
      inspection.gpu.bandwidth_tb_s, escape_html(inspection.gpu.name), time_text(token.us_before),
      time_text(token.us_after), token.us_before / token.us_after);
  for (const std::string& assumption : token.assumptions) {
    html += "<li>" + escape_html(assumption) + "</li>";
  }
  return html + "</ul>\n";
}

}  // namespace

std::string inspection_html(const Model& model, const Inspection& inspection, bool single) {
  const std::string title = !single ? model.path()
                            : inspection.measured.empty()
                                ? inspection.fp16.front().tensor->original.name
                                : inspection.measured.front().tensor->original.name;
  std::string body = fmt::format("<h1>{}</h1>\n", escape_html(title));
  if (single) body += fmt::format("<p class=\"soft\">of {}</p>\n", escape_html(model.path()));
  if (inspection.measured.empty()) {
    if (inspection.fp16.empty()) body += "<p>There is nothing to pack.</p>\n";
    body += fp16_html(inspection) + kept_html(inspection);
    return report::html_page("SlimGEMM inspect: " + title,
                             body + report::embedded_json(inspection_json(model, inspection)));
  }
  body += facts_html(model, inspection, single);
  body += "<div class=\"grid-of-charts\">\n";
  body += card("How large the weights are",
               "Percent of the weights by magnitude. 12 bits express 16 exponents, the window.",
               report::draw(magnitude_chart(inspection.total)));
  body += card("What lies outside the window",
               "The same, counted from the window that each matrix has, on an axis of powers of "
               "ten, so that rare weights are seen. Those outside the shade are kept beside.",
               report::draw(relative_chart(inspection.total)));
  if (inspection.layers.size() > 1) {
    body += card("Bits by layer",
                 "Bits a weight of the packed tensors of each layer; dots: the least possible.",
                 report::draw(layer_chart(inspection)));
  }
  if (!single) {
    body += card("Before and after", "Upper bars: before packing; lower bars: packed.",
                 before_after(inspection));
  }
  body += "</div>\n";
  if (!single) body += token_html(inspection);
  body += table_html(inspection) + fp16_html(inspection) + kept_html(inspection) +
          report::embedded_json(inspection_json(model, inspection));
  return report::html_page("SlimGEMM inspect: " + title, body);
}

}  // namespace slimgemm::inspect
