// SPDX-License-Identifier: Apache-2.0
// What counts as correct. Pure functions: an output, its FP64 reference and the rules in; figures
// and named failures out.
#pragma once

#include "judge/cases.hpp"
#include "judge/inputs.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// Largest relative L2 error of a whole output: 1 %, for FP32 results (the router) 0.01 %.
constexpr double l2_limit(DType dtype) { return dtype == DType::f32 ? 1e-4 : 1e-2; }
/// No single row may be off by more than this many times that limit.
inline constexpr double row_limit_factor = 5;
/// Every element of a probe row, relative to the exactly scaled weight. Below the smallest normal
/// FP32 number an absolute difference of that size is allowed: hardware may flush it to zero.
inline constexpr double probe_limit = 1e-3;
inline constexpr double probe_absolute = 0x1p-126;

/// Poisoned bytes before and after every output.
inline constexpr std::size_t guard_bytes = 4096;

enum class FailureKind {
  unwritten,    ///< an element still holds the poison
  not_finite,   ///< NaN or Inf
  guard_zone,   ///< bytes outside the output were written
  l2_error,     ///< the whole output is off by more than its limit
  row_error,    ///< one row is off by more than row_limit_factor times the limit
  probe_error,  ///< a probe row is not the scaled weight column
  call_failed,  ///< recording or running threw: host synchronisation, allocation, error return
  prepare_failed,
  run_ended,     ///< the device could not be used any more after an earlier failure
  prepare_time,  ///< prepare() took longer than it may
};
/// "unwritten element", "NaN or Inf", ...
const char* name(FailureKind kind);

/// One broken rule. Row and column are -1 where they mean nothing.
struct Failure {
  FailureKind kind;
  std::string layer;   ///< empty for prepare of all layers
  std::int64_t m = 0;  ///< 0 where it is no single shape's
  std::int64_t row = -1;
  std::int64_t column = -1;
  double got = 0;
  double expected = 0;
  double measured = 0;  ///< the error or the time, compared with `limit`
  double limit = 0;
  std::int64_t count = 1;  ///< elements, rows or bytes that break the rule in this output
  std::string detail;      ///< an error message, or where a guard zone was hit

  /// One sentence with layer, m, row, column, got, expected.
  [[nodiscard]] std::string to_string() const;
};

/// Errors of one output against its reference. All infinite if the output can't be compared.
struct ErrorFigures {
  double l2 = 0;     ///< relative L2 error of the whole output
  double row = 0;    ///< largest relative L2 error of a row
  double probe = 0;  ///< largest relative error of an element of a probe row
  void worsen(const ErrorFigures& other);
};

struct OutputCheck {
  ErrorFigures errors;
  std::vector<Failure> failures;  ///< at most one of each kind, naming the worst place
};

/// Checks one output. `buffer` is guard_bytes of poison, the m x n output of shape.dtype, and
/// guard_bytes of poison, all poisoned before the call; `reference` has m * n values.
/// Errors: invalid_argument if a size does not fit the shape.
OutputCheck check_output(const Shape& shape, const Input& input, std::span<const double> reference,
                         std::span<const std::byte> buffer);

/// Bytes of an output of this shape without and with its guard zones.
std::size_t output_bytes(const Shape& shape);
std::size_t guarded_bytes(const Shape& shape);

}  // namespace slimgemm::judge
