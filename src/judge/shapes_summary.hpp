// SPDX-License-Identifier: Apache-2.0
// What a run of a shape file says as a whole. Pure functions of its result.
#pragma once

#include "judge/run.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// The shapes that 12-bit weights are made for: BF16 layers above this size (dense bytes), up to so
/// many tokens. A decode step spends most of its time in them.
inline constexpr std::int64_t large_layer_bytes = 20'000'000;
inline constexpr std::int64_t large_layer_tokens = 16;
/// The speedup that is asked of each of them.
inline constexpr double large_layer_speedup = 1.25;

struct ShapesSummary {
  std::string baseline;
  std::vector<const CaseResult*> compared;     ///< timed on both sides; null pointers nowhere
  double geometric_mean = 0;                   ///< of their speedups; 0 if there are none
  std::vector<const CaseResult*> slower;       ///< of `compared`: speedup below 1
  std::vector<const CaseResult*> large;        ///< of `compared`: see above
  std::vector<const CaseResult*> large_below;  ///< of `large`: speedup below large_layer_speedup
};

bool is_large_layer(const Shape& shape);

/// One entry a baseline; its pointers lead into `result`.
std::vector<ShapesSummary> summarise_shapes(const RunResult& result);

/// "llama3-8b.qkv m=4 0.983 [0.968, 0.998]".
std::string speedup_text(const CaseResult& c, std::size_t baseline);

/// Share of the ceiling that the contender reaches: the time of the plain read over ours.
std::optional<double> ceiling_share(const CaseResult& c);

/// Up to three lines a baseline, naming the shapes that fall short: `bullet` stands before the
/// first, `indent` before the others.
std::string shapes_summary_text(const RunResult& result, const std::string& bullet,
                                const std::string& indent);

}  // namespace slimgemm::judge
