// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict.hpp"

#include "judge/executor.hpp"
#include "support/bf16.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace slimgemm::judge {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Failure failure_of(FailureKind kind, const Shape& shape) {
  Failure failure{};
  failure.kind = kind;
  failure.layer = shape.name;
  failure.m = shape.m;
  failure.count = 0;
  return failure;
}

// The output as doubles, with the elements that cannot be compared counted on the way.
class Output {
 public:
  Output(const Shape& shape, const std::byte* data) : shape_(shape), data_(data) {}

  [[nodiscard]] double at(std::int64_t index) const {
    if (shape_.dtype == DType::bf16) return bf16_to_float(load<std::uint16_t>(index));
    return load<float>(index);
  }
  [[nodiscard]] bool unwritten(std::int64_t index) const {
    if (shape_.dtype == DType::bf16) return load<std::uint16_t>(index) == 0xFFFFU;
    return load<std::uint32_t>(index) == 0xFFFFFFFFU;
  }

 private:
  template <typename T>
  [[nodiscard]] T load(std::int64_t index) const {
    T value;
    std::memcpy(&value, data_ + static_cast<std::size_t>(index) * sizeof(T), sizeof(T));
    return value;
  }
  const Shape& shape_;
  const std::byte* data_;
};

void check_guards(const Shape& shape, std::span<const std::byte> buffer, OutputCheck& check) {
  const auto poison = static_cast<std::byte>(poison_byte);
  const std::size_t out_end = buffer.size() - guard_bytes;
  Failure failure = failure_of(FailureKind::guard_zone, shape);
  for (std::size_t i = 0; i < buffer.size(); ++i) {
    if (i == guard_bytes) i = out_end;
    if (buffer[i] == poison) continue;
    if (failure.count++ > 0) continue;
    failure.detail = i < guard_bytes ? fmt::format("{} bytes before the output", guard_bytes - i)
                                     : fmt::format("{} bytes after its end", i - out_end);
  }
  if (failure.count > 0) check.failures.push_back(failure);
}

// False if some element is unwritten, NaN or Inf.
bool check_elements(const Shape& shape, const Output& out, std::span<const double> reference,
                    OutputCheck& check) {
  Failure unwritten = failure_of(FailureKind::unwritten, shape);
  Failure not_finite = failure_of(FailureKind::not_finite, shape);
  for (std::int64_t i = 0; i < shape.m * shape.n; ++i) {
    const double got = out.at(i);
    if (std::isfinite(got)) continue;
    Failure& failure = out.unwritten(i) ? unwritten : not_finite;
    if (failure.count++ > 0) continue;
    failure.row = i / shape.n;
    failure.column = i % shape.n;
    failure.got = got;
    failure.expected = reference[static_cast<std::size_t>(i)];
  }
  for (const Failure& failure : {unwritten, not_finite}) {
    if (failure.count > 0) check.failures.push_back(failure);
  }
  return unwritten.count + not_finite.count == 0;
}

double relative(double error, double size) {
  if (error == 0) return 0;
  return size == 0 ? infinity : error / size;
}

// Collects the figures of one output and the worst place of each rule.
class Comparison {
 public:
  Comparison(const Shape& shape, const Output& out, std::span<const double> reference)
      : shape_(shape),
        out_(out),
        reference_(reference),
        l2_(failure_of(FailureKind::l2_error, shape)),
        row_(failure_of(FailureKind::row_error, shape)),
        probe_(failure_of(FailureKind::probe_error, shape)) {
    l2_.limit = l2_limit(shape.dtype);
    row_.limit = row_limit_factor * l2_.limit;
    probe_.limit = probe_limit;
  }

  void add_row(std::int64_t row, bool is_probe) {
    double row_error = 0;
    double row_size = 0;
    double worst = -1;
    std::int64_t worst_column = 0;
    for (std::int64_t column = 0; column < shape_.n; ++column) {
      const double got = out_.at(row * shape_.n + column);
      const double expected = reference_[static_cast<std::size_t>(row * shape_.n + column)];
      const double difference = std::abs(got - expected);
      row_error += difference * difference;
      row_size += expected * expected;
      if (difference > worst) {
        worst = difference;
        worst_column = column;
      }
      if (is_probe) add_probe_element(row, column, got, expected);
    }
    error_ += row_error;
    size_ += row_size;
    const double figure = relative(std::sqrt(row_error), std::sqrt(row_size));
    row_.count += figure > row_.limit;
    if (figure > row_.measured) place(row_, row, worst_column, figure);
    if (worst > worst_element_) {
      worst_element_ = worst;
      place(l2_, row, worst_column, 0);
    }
  }

  void finish(OutputCheck& check) {
    l2_.measured = relative(std::sqrt(error_), std::sqrt(size_));
    l2_.count = l2_.measured > l2_.limit;
    check.errors = {l2_.measured, row_.measured, probe_.measured};
    for (const Failure& failure : {l2_, row_, probe_}) {
      if (failure.count > 0) check.failures.push_back(failure);
    }
  }

 private:
  void add_probe_element(std::int64_t row, std::int64_t column, double got, double expected) {
    const double difference = std::abs(got - expected);
    if (difference <= probe_absolute) return;
    const double figure = relative(difference, std::abs(expected));
    probe_.count += figure > probe_.limit;
    if (figure > probe_.measured) place(probe_, row, column, figure);
  }

  void place(Failure& failure, std::int64_t row, std::int64_t column, double measured) {
    failure.row = row;
    failure.column = column;
    failure.got = out_.at(row * shape_.n + column);
    failure.expected = reference_[static_cast<std::size_t>(row * shape_.n + column)];
    failure.measured = measured;
  }

  const Shape& shape_;
  const Output& out_;
  std::span<const double> reference_;
  Failure l2_;
  Failure row_;
  Failure probe_;
  double error_ = 0;
  double size_ = 0;
  double worst_element_ = -1;
};

std::string percent_text(double value) { return fmt::format("{:.3g} %", value * 100); }

}  // namespace

const char* name(FailureKind kind) {
  switch (kind) {
    case FailureKind::unwritten:
      return "unwritten element";
    case FailureKind::not_finite:
      return "NaN or Inf";
    case FailureKind::guard_zone:
      return "write outside the output";
    case FailureKind::l2_error:
      return "wrong result";
    case FailureKind::row_error:
      return "wrong row";
    case FailureKind::probe_error:
      return "wrong probe row";
    case FailureKind::call_failed:
      return "call failed";
    case FailureKind::prepare_failed:
      return "prepare failed";
    case FailureKind::prepare_time:
      return "prepare too long";
    case FailureKind::run_ended:
      return "run ended early, the device failed after an earlier failure";
  }
  return "unknown";
}

std::string Failure::to_string() const {
  std::string text;
  if (!layer.empty()) text = m > 0 ? fmt::format("{} m={}: ", layer, m) : layer + ": ";
  text += name(kind);
  if (row >= 0) text += fmt::format(" at row {}, column {}", row, column);
  if (row >= 0 && kind != FailureKind::unwritten) text += fmt::format(": got {:.6g}", got);
  if (row >= 0) text += fmt::format(", expected {:.6g}", expected);
  switch (kind) {
    case FailureKind::unwritten:
    case FailureKind::not_finite:
      return text + fmt::format("; {} such elements", count);
    case FailureKind::guard_zone:
      return text + fmt::format(": {} bytes, the first {}", count, detail);
    case FailureKind::l2_error:
      return text + fmt::format(" (the worst element); relative L2 error {}, limit {}",
                                percent_text(measured), percent_text(limit));
    case FailureKind::row_error:
      return text + fmt::format(
                        " (the row's worst element); relative L2 error of the row {}, limit "
                        "{}; {} such rows",
                        percent_text(measured), percent_text(limit), count);
    case FailureKind::probe_error:
      return text + fmt::format("; off by {}, limit {}; {} such elements", percent_text(measured),
                                percent_text(limit), count);
    case FailureKind::prepare_time:
      return text + fmt::format(": {:.1f} s, limit {:.1f} s", measured, limit);
    case FailureKind::call_failed:
    case FailureKind::run_ended:
    case FailureKind::prepare_failed:
      return text + ": " + detail;
  }
  return text;
}

void ErrorFigures::worsen(const ErrorFigures& other) {
  l2 = std::max(l2, other.l2);
  row = std::max(row, other.row);
  probe = std::max(probe, other.probe);
}

std::size_t output_bytes(const Shape& shape) {
  return static_cast<std::size_t>(shape.m * shape.n * size_bytes(shape.dtype));
}

std::size_t guarded_bytes(const Shape& shape) { return output_bytes(shape) + 2 * guard_bytes; }

OutputCheck check_output(const Shape& shape, const Input& input, std::span<const double> reference,
                         std::span<const std::byte> buffer) {
  const auto elements = static_cast<std::size_t>(shape.m * shape.n);
  if (buffer.size() != guarded_bytes(shape) || reference.size() != elements ||
      input.probe.size() != static_cast<std::size_t>(shape.m)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("output check of {} x {}: {} bytes of output, {} reference values and {} "
                    "rows of x; expected {}, {} and {}",
                    shape.m, shape.n, buffer.size(), reference.size(), input.probe.size(),
                    guarded_bytes(shape), elements, shape.m));
  }
  OutputCheck check;
  check_guards(shape, buffer, check);
  const Output out(shape, buffer.data() + guard_bytes);
  if (!check_elements(shape, out, reference, check)) {
    check.errors = {infinity, infinity, infinity};
    return check;
  }
  Comparison comparison(shape, out, reference);
  for (std::int64_t row = 0; row < shape.m; ++row) {
    comparison.add_row(row, input.probe[static_cast<std::size_t>(row)] != 0);
  }
  comparison.finish(check);
  return check;
}

}  // namespace slimgemm::judge
