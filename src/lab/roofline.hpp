// SPDX-License-Identifier: Apache-2.0
// The speed of light of a linear layer: bytes over bandwidth against FLOPs over FLOP/s.
#pragma once

#include "judge/cases.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::lab {

/// Peak figures of a GPU.
struct Gpu {
  std::string name;
  double bandwidth_tb_s = 0;       ///< memory bandwidth, 10^12 bytes a second
  double peak_tflop_s = 0;         ///< dense BF16 tensor-core rate, 10^12 FLOP a second
  std::uint64_t memory_bytes = 0;  ///< for programs; 0 where it is not known

  /// FLOP per byte at which both terms take the same time.
  [[nodiscard]] double ridge() const { return peak_tflop_s / bandwidth_tb_s; }
};

/// "h200" or "h100" (the SXM parts; figures of NVIDIA's data sheets, but for the H200's memory,
/// which is what the driver reports: results/h200). Throws Error(invalid_argument) that names the
/// value and what is allowed.
Gpu named_gpu(std::string_view name);

/// The GPU of the options --gpu, --bandwidth and --flops. A figure given replaces that of the named
/// GPU; "custom" needs both. Throws Error(invalid_argument) that names the value and its limits.
Gpu choose_gpu(std::string_view name, std::optional<double> bandwidth_tb_s,
               std::optional<double> peak_tflop_s);

/// out (m x n) = x (m x k, 16 bits an element) @ W.T (W: n x k).
struct Matmul {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t m = 0;
  double weight_bits = 16;  ///< bits a weight takes in memory, on average
  double out_bits = 16;     ///< bits an element of out takes
};

/// One of the judge's layers at m; for the unpooler at m <= 8, the slice that the judge computes.
Matmul layer_matmul(judge::Layer layer, std::int64_t m);

/// The judge's layer of this name. Throws Error(invalid_argument) that lists the names.
judge::Layer layer_named(std::string_view name);

enum class Term { memory, math };

struct Roofline {
  double bytes = 0;      ///< n*k*weight_bits/8 + m*k*2 + m*n*out_bits/8
  double flops = 0;      ///< 2*m*n*k
  double memory_us = 0;  ///< bytes / bandwidth
  double math_us = 0;    ///< FLOPs / peak

  [[nodiscard]] Term binds() const { return math_us > memory_us ? Term::math : Term::memory; }
  /// The time of the term that binds: no kernel can be faster.
  [[nodiscard]] double floor_us() const { return binds() == Term::math ? math_us : memory_us; }
  /// How many times longer the binding term takes than the other one, at least 1.
  [[nodiscard]] double margin() const {
    return binds() == Term::math ? math_us / memory_us : memory_us / math_us;
  }
  [[nodiscard]] double flop_per_byte() const { return flops / bytes; }
  /// The highest rate the roofline allows, TFLOP/s.
  [[nodiscard]] double attainable_tflop_s() const { return flops / floor_us() / 1e6; }
};

/// Throws Error(invalid_argument) that names the value and its limit: n, k, m 1 to max_dimension,
/// weight_bits and out_bits above 0 and at most 64.
Roofline roofline(const Matmul& matmul, const Gpu& gpu);

/// The smallest m from which the math binds, or nothing if memory binds at every m (each further
/// row of x and out then brings more bytes than its FLOPs hide).
std::optional<std::int64_t> math_bound_from_m(const Matmul& matmul, const Gpu& gpu);

/// A question put to `slimgemm roofline`: one matmul for each m, in the order to be shown.
struct RooflineQuery {
  std::string title;  ///< "qkv_gate", or empty
  std::vector<Matmul> matmuls;
  Gpu gpu;
};

/// The matmul with the most rows of W: the whole layer, where some m use a slice of it.
const Matmul& widest_matmul(const RooflineQuery& query);

/// Two decimals, or three significant digits below 1.
std::string short_number(double value);

/// The answer as a table, a line for each m.
std::string roofline_text(const RooflineQuery& query);

/// The answer as a self-contained SVG drawing with logarithmic axes.
std::string roofline_svg(const RooflineQuery& query);

}  // namespace slimgemm::lab
