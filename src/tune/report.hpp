// SPDX-License-Identifier: Apache-2.0
// What a search found, for people (text) and for programs (JSON, docs/tuning.md).
#pragma once

#include "tune/tune.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace slimgemm::tune {

/// How far the cost model's choice may be from the best to count as right.
inline constexpr double model_tolerance = 1.10;

/// All instances of a shape by time, the cost model's choice marked.
std::string shape_text(const ShapeResult& shape);

/// For how many shapes the cost model's choice is within model_tolerance, and the worst ones.
std::string summary_text(const Result& result);

/// What the JSON states beside the result.
struct Facts {
  std::string command_line;
  std::string version;
  std::string commit;
  std::string date;                                         ///< UTC, ISO 8601
  std::optional<double> exception_share;                    ///< none: as normal weights have them
  std::vector<std::pair<std::string, std::string>> device;  ///< as the executor describes it
};

/// "NVIDIA H200, 2026-01-31, slimgemm 0.1.0 commit 0123456789ab".
std::string source_text(const Facts& facts);

/// Errors: unsupported in a build without JSON (json_available).
std::string json_text(const Result& result, const Facts& facts);
bool json_available();

/// What is read back of the JSON. Instances by name: the kernel table may have changed since.
struct Measured {
  std::string instance;
  double median_us = 0;
};
struct MeasuredShape {
  std::string layer;
  plan::Problem problem;
  std::vector<Measured> instances;  ///< those that were timed, the fastest first
};
struct MeasuredFile {
  plan::GpuFacts gpu;
  std::vector<MeasuredShape> shapes;
};
/// Errors: invalid_argument naming `name` and the field; unsupported in a build without JSON.
MeasuredFile parse_json(std::string_view text, const std::string& name);

}  // namespace slimgemm::tune
