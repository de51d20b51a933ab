// SPDX-License-Identifier: Apache-2.0
#include "lab/roofline.hpp"

#include <fmt/format.h>

#include <cmath>
#include <slimgemm/error.hpp>

namespace slimgemm::lab {
namespace {

constexpr double x_bits = 16;
constexpr double bits_max = 64;
constexpr double bandwidth_max_tb_s = 1e4;
constexpr double peak_max_tflop_s = 1e8;

void require_dimension(const char* what, std::int64_t value) {
  if (value < 1 || value > max_dimension) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is {}; allowed: 1 to {}", what, value, max_dimension));
  }
}

void require_within(const char* what, double value, double limit, const char* unit) {
  if (!(value > 0 && value <= limit)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} is {:g}; allowed: above 0 and at most {:g}{}", what, value, limit, unit));
  }
}

}  // namespace

Gpu named_gpu(std::string_view name) {
  if (name == "h200") {
    return {"H200", 4.8, 989, 150'109'880'320};
  }
  if (name == "h100") {
    return {"H100", 3.35, 989, 80'000'000'000};
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("GPU '{}' is unknown; allowed: h200, h100, custom", name));
}

Gpu choose_gpu(std::string_view name, std::optional<double> bandwidth_tb_s,
               std::optional<double> peak_tflop_s) {
  if (bandwidth_tb_s) {
    require_within("bandwidth", *bandwidth_tb_s, bandwidth_max_tb_s, " TB/s");
  }
  if (peak_tflop_s) {
    require_within("peak rate", *peak_tflop_s, peak_max_tflop_s, " TFLOP/s");
  }
  if (name == "custom") {
    if (!bandwidth_tb_s || !peak_tflop_s) {
      throw Error(
          ErrorCode::invalid_argument,
          "--gpu custom needs its figures: give --bandwidth in TB/s and --flops in TFLOP/s");
    }
    return {"custom GPU", *bandwidth_tb_s, *peak_tflop_s, 0};
  }
  Gpu gpu = named_gpu(name);
  if (bandwidth_tb_s || peak_tflop_s) {
    gpu.name += " with other figures";
  }
  gpu.bandwidth_tb_s = bandwidth_tb_s.value_or(gpu.bandwidth_tb_s);
  gpu.peak_tflop_s = peak_tflop_s.value_or(gpu.peak_tflop_s);
  return gpu;
}

judge::Layer layer_named(std::string_view name) {
  std::string allowed;
  for (const judge::LayerInfo& layer : judge::layers()) {
    if (layer.name == name) {
      return layer.layer;
    }
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", layer.name);
  }
  throw Error(ErrorCode::invalid_argument,
              fmt::format("layer '{}' is unknown; allowed: {}", name, allowed));
}

Matmul layer_matmul(judge::Layer layer, std::int64_t m) {
  const judge::Case shape{layer, m, false};
  const double bits = 8.0 * static_cast<double>(size_bytes(shape.dtype()));
  return {shape.n(), shape.k(), m, bits, bits};
}

Roofline roofline(const Matmul& matmul, const Gpu& gpu) {
  require_dimension("N", matmul.n);
  require_dimension("K", matmul.k);
  require_dimension("m", matmul.m);
  require_within("weight bits", matmul.weight_bits, bits_max, "");
  require_within("out bits", matmul.out_bits, bits_max, "");
  const auto n = static_cast<double>(matmul.n);
  const auto k = static_cast<double>(matmul.k);
  const auto m = static_cast<double>(matmul.m);
  Roofline result;
  result.bytes = (n * k * matmul.weight_bits + m * k * x_bits + m * n * matmul.out_bits) / 8;
  result.flops = 2 * m * n * k;
  result.memory_us = result.bytes / gpu.bandwidth_tb_s / 1e6;
  result.math_us = result.flops / gpu.peak_tflop_s / 1e6;
  return result;
}

std::optional<std::int64_t> math_bound_from_m(const Matmul& matmul, const Gpu& gpu) {
  const auto n = static_cast<double>(matmul.n);
  const auto k = static_cast<double>(matmul.k);
  // Bytes whose time the math of one row of x hides, less the bytes that the row itself brings.
  const double hidden_bytes = 2 * n * k / gpu.ridge() - (k * x_bits + n * matmul.out_bits) / 8;
  const double m = n * k * matmul.weight_bits / 8 / hidden_bytes;
  if (hidden_bytes <= 0 || m >= static_cast<double>(max_dimension)) {
    return std::nullopt;
  }
  return static_cast<std::int64_t>(std::floor(m)) + 1;
}

}  // namespace slimgemm::lab
