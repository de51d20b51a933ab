// SPDX-License-Identifier: Apache-2.0
// The roofline as a drawing: attainable TFLOP/s over FLOP/byte, both axes logarithmic. The roof
// rises with the bandwidth up to the ridge and is flat behind it; every m is a point on it.
#include "lab/roofline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

namespace slimgemm::lab {
namespace {

constexpr double width = 820;
constexpr double height = 520;
constexpr double left = 76;
constexpr double right = 28;
constexpr double top = 84;
constexpr double bottom = 64;
constexpr double label_line = 16;
constexpr double label_step = 4;
constexpr double character_width = 7.4;

constexpr const char* style = R"(<style>
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #24292f; }
.page { fill: #ffffff; }
.title { font-size: 16px; font-weight: 600; }
.quiet { fill: #57606a; }
.label { stroke: #ffffff; stroke-width: 4; stroke-linejoin: round; paint-order: stroke; }
.grid { stroke: #d8dee4; stroke-width: 1; }
.frame { stroke: #8c959f; stroke-width: 1; fill: none; }
.roof { stroke: #24292f; stroke-width: 2.5; fill: none; stroke-linejoin: round; }
.ridge { stroke: #57606a; stroke-width: 1; stroke-dasharray: 4 4; }
.lead { stroke: #8c959f; stroke-width: 1; }
.memory { fill: #0969da; }
.math { fill: #bc4c00; }
.point { stroke: #ffffff; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.page { fill: #0d1117; }
.quiet { fill: #9198a1; }
.label { stroke: #0d1117; }
.grid { stroke: #262c36; }
.frame { stroke: #6e7681; }
.roof { stroke: #e6edf3; }
.ridge { stroke: #9198a1; }
.lead { stroke: #6e7681; }
.memory { fill: #4493f8; }
.math { fill: #f0883e; }
.point { stroke: #0d1117; }
}
</style>
)";

/// A logarithmic axis from `low` to `high`, drawn from pixel `from` to pixel `to`.
struct Axis {
  double low;
  double high;
  double from;
  double to;

  [[nodiscard]] double at(double value) const {
    return from + (to - from) * std::log(value / low) / std::log(high / low);
  }
  /// Round values on the axis: powers of ten, with 2 and 5 times them where the axis is short.
  [[nodiscard]] std::vector<double> ticks() const {
    const bool fine = std::log10(high / low) < 3;
    std::vector<double> values;
    const int last = static_cast<int>(std::ceil(std::log10(high)));
    for (int exponent = static_cast<int>(std::floor(std::log10(low))); exponent <= last;
         ++exponent) {
      for (const int digit : {1, 2, 5}) {
        const double value = digit * std::pow(10.0, exponent);
        if ((digit == 1 || fine) && value >= low && value <= high) {
          values.push_back(value);
        }
      }
    }
    return values;
  }
};

struct Box {
  double x0, y0, x1, y1;

  [[nodiscard]] bool overlaps(const Box& other) const {
    return x0 < other.x1 && other.x0 < x1 && y0 < other.y1 && other.y0 < y1;
  }
};

class Drawing {
 public:
  explicit Drawing(const RooflineQuery& query) : query_(query) {
    double intensity_min = query.gpu.ridge();
    double intensity_max = query.gpu.ridge();
    for (const Matmul& matmul : query.matmuls) {
      lines_.push_back(roofline(matmul, query.gpu));
      intensity_min = std::min(intensity_min, lines_.back().flop_per_byte());
      intensity_max = std::max(intensity_max, lines_.back().flop_per_byte());
    }
    x_ = {intensity_min / 2, std::max(intensity_max * 4, query.gpu.ridge() * 5), left,
          width - right};
    y_ = {x_.low * query.gpu.bandwidth_tb_s, query.gpu.peak_tflop_s * 2, height - bottom, top};
  }

  std::string svg() {
    add("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
        "height=\"{}\" "
        "role=\"img\" aria-label=\"Roofline of {}\">\n",
        width, height, width, height, heading());
    text_ += style;
    add("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", width, height);
    text(left, 30, "start", "title", heading());
    legend();
    axes();
    roof();
    points();
    text_ += "</svg>\n";
    return text_;
  }

 private:
  template <typename... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  void text(double x, double y, const char* anchor, const char* css, const std::string& content) {
    add("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor,
        css, content);
  }

  void line(double x0, double y0, double x1, double y1, const char* css) {
    add("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>\n", x0, y0,
        x1, y1, css);
  }

  [[nodiscard]] std::string heading() const {
    const Matmul& widest = widest_matmul(query_);
    return fmt::format("{}{}N = {}, K = {}, {:g}-bit weights, on {}", query_.title,
                       query_.title.empty() ? "" : ": ", widest.n, widest.k, widest.weight_bits,
                       query_.gpu.name);
  }

  void legend() {
    const double y = 56;
    add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"memory\"/>\n", left + 5, y - 4);
    text(left + 16, y, "start", "quiet", "memory binds");
    add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"math\"/>\n", left + 125, y - 4);
    text(left + 136, y, "start", "quiet", "math binds");
    text(width - right, y, "end", "quiet", "each point: m and its shortest possible time");
  }

  void axes() {
    for (const double tick : x_.ticks()) {
      line(x_.at(tick), y_.from, x_.at(tick), y_.to, "grid");
      text(x_.at(tick), y_.from + 20, "middle", "quiet", fmt::format("{:g}", tick));
    }
    for (const double tick : y_.ticks()) {
      line(x_.from, y_.at(tick), x_.to, y_.at(tick), "grid");
      text(x_.from - 10, y_.at(tick) + 4, "end", "quiet", fmt::format("{:g}", tick));
    }
    add("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"frame\"/>\n",
        x_.from, y_.to, x_.to - x_.from, y_.from - y_.to);
    text((x_.from + x_.to) / 2, height - 16, "middle", "axis", "FLOP per byte moved");
    const double middle = (y_.from + y_.to) / 2;
    add("<text x=\"22\" y=\"{:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 22 {:.1f})\">"
        "attainable TFLOP/s</text>\n",
        middle, middle);
  }

  void roof() {
    const Gpu& gpu = query_.gpu;
    const double ridge_x = x_.at(gpu.ridge());
    const double roof_y = y_.at(gpu.peak_tflop_s);
    line(ridge_x, roof_y, ridge_x, y_.from, "ridge");
    text(ridge_x - 8, y_.from - 12, "end", "quiet label",
         fmt::format("ridge: {:.0f} FLOP/byte", gpu.ridge()));
    add("<polyline class=\"roof\" points=\"{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}\"/>\n",
        x_.from, y_.from, ridge_x, roof_y, x_.to, roof_y);
    text(x_.to - 10, roof_y - 10, "end", "quiet", fmt::format("{:g} TFLOP/s", gpu.peak_tflop_s));
    const double x = (x_.from + ridge_x) / 2;
    const double y = (y_.from + roof_y) / 2;
    const double angle = std::atan2(roof_y - y_.from, ridge_x - x_.from) * 45 / std::atan(1.0);
    add("<text x=\"{0:.1f}\" y=\"{1:.1f}\" dy=\"-14\" text-anchor=\"middle\" class=\"quiet\" "
        "transform=\"rotate({2:.1f} {0:.1f} {1:.1f})\">{3:g} TB/s</text>\n",
        x, y, angle, gpu.bandwidth_tb_s);
  }

  /// The points on the roof over their labels.
  void points() {
    std::vector<std::size_t> order(lines_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return lines_[a].flop_per_byte() > lines_[b].flop_per_byte();
    });
    const double ridge_x = x_.at(query_.gpu.ridge());
    std::vector<Box> taken{{ridge_x - 160, y_.from - 28, ridge_x, y_.from}};  // the ridge's label
    for (const std::size_t i : order) {
      label_point(i, taken);
    }
    for (const Roofline& roof : lines_) {
      add("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\" class=\"point {}\"/>\n",
          x_.at(roof.flop_per_byte()), y_.at(roof.attainable_tflop_s()),
          roof.binds() == Term::memory ? "memory" : "math");
    }
  }

  /// Right below the point, or further down where others are. Called from the right to the left, so
  /// that no lead runs through a label. A label for which no room is left is not drawn.
  void label_point(std::size_t i, std::vector<Box>& taken) {
    const double x = x_.at(lines_[i].flop_per_byte());
    const double y = y_.at(lines_[i].attainable_tflop_s());
    const std::string label =
        fmt::format("m = {}: {} us", query_.matmuls[i].m, short_number(lines_[i].floor_us()));
    const double label_width = character_width * static_cast<double>(label.size());
    const double label_x = std::min(x + 12, x_.to - label_width - 4);
    const int tries = static_cast<int>((y_.from - 6 - (y + 20)) / label_step);
    for (int step = 0; step < tries; ++step) {
      const double label_y = y + 20 + label_step * step;
      const Box box{label_x, label_y - label_line + 4, label_x + label_width, label_y + 4};
      if (std::none_of(taken.begin(), taken.end(), [&](const Box& b) { return b.overlaps(box); })) {
        taken.push_back(box);
        line(x, y, label_x - 2, label_y - 5, "lead");
        text(label_x, label_y, "start", "label", label);
        return;
      }
    }
  }

  const RooflineQuery& query_;
  std::vector<Roofline> lines_;
  Axis x_{};
  Axis y_{};
  std::string text_;
};

}  // namespace

std::string roofline_svg(const RooflineQuery& query) { return Drawing(query).svg(); }

}  // namespace slimgemm::lab
