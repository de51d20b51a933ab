// SPDX-License-Identifier: Apache-2.0
// What the facts mean: findings, each with what to do about it.
#pragma once

#include "doctor/machine.hpp"

#include <string>
#include <vector>

namespace slimgemm::doctor {

enum class Level {
  ok,       ///< works
  absent,   ///< is not there, and the rest works without it
  problem,  ///< should work here and does not
};
/// "ok", "absent", "problem".
const char* name(Level level);

struct Finding {
  std::string key;  ///< for programs: "gpu.driver"
  Level level = Level::ok;
  std::string text;
  std::string remedy;  ///< what to do; empty where there is nothing to do
};

struct Section {
  std::string title;
  std::vector<Finding> findings;
};

struct Diagnosis {
  std::vector<Section> sections;  ///< build, processor, GPU
  bool cpu_works = false;         ///< packing and layers work on the CPU
  bool gpu_works = false;         ///< layers work on at least one GPU

  [[nodiscard]] bool has_problem() const;
};

/// Plain arithmetic on the facts; looks at nothing itself.
Diagnosis diagnose(const Machine& machine);

/// The GPU's section of it (gpu.cpp).
Section diagnose_gpu(const Machine& machine);

/// What a person reads: every finding, and below it what to do; a summary at the end.
std::string text_report(const Machine& machine, const Diagnosis& diagnosis);

/// The same for programs (docs/inspecting.md). Errors: unsupported in a build without JSON.
std::string json_report(const Machine& machine, const Diagnosis& diagnosis);

}  // namespace slimgemm::doctor
