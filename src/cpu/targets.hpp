// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU backend uses.
#pragma once

#include "cpu/kernels.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::cpu {

/// The environment variable that forces a target.
inline constexpr const char* target_variable = "SLIMGEMM_CPU_TARGET";

/// One choice of kernels. `dot` is set for avx512bf16 alone: it then serves split12 for batches of
/// up to dot_max_tokens wherever it is exact, and `tables` serves the rest.
struct Target {
  std::string_view name;
  const KernelTables* tables = nullptr;
  const KernelTable* dot = nullptr;
  std::int64_t dot_max_tokens = 0;
};

/// What this build has and this machine can run, best last: "scalar" always, then "avx2",
/// "avx512", "avx512bf16".
std::vector<Target> available_targets();

/// The target of that name; for an empty name the best one, which takes the BF16 dot product only
/// where it is ahead of FP32 multiplication: for the few tokens whose weights stay in registers.
/// Errors: invalid_argument for a name that is none of the four; unsupported for one that this
/// build or this machine lacks. Both name the value and the allowed ones.
Target find_target(std::string_view name);

/// find_target() of the environment variable's value.
Target chosen_target();

}  // namespace slimgemm::cpu
