// SPDX-License-Identifier: Apache-2.0
#include "cpu/targets.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace slimgemm::cpu {
namespace {

constexpr std::array<std::string_view, 4> target_names = {"scalar", "avx2", "avx512", "avx512bf16"};

std::string list_names(const std::vector<Target>& targets) {
  std::string names;
  for (const Target& target : targets) {
    if (!names.empty()) names += ", ";
    names += target.name;
  }
  return names;
}

}  // namespace

std::vector<Target> available_targets() {
  std::vector<Target> targets = {{target_names[0], &scalar_kernels()}};
#if SLIMGEMM_HAVE_HIGHWAY
  if (avx2_kernels() != nullptr) targets.push_back({target_names[1], avx2_kernels()});
  if (avx512_kernels() != nullptr) targets.push_back({target_names[2], avx512_kernels()});
  if (avx512bf16_kernels() != nullptr) {
    targets.push_back({target_names[3], avx512_kernels(), avx512bf16_kernels(), max_dimension});
  }
#endif
  return targets;
}

Target find_target(std::string_view name) {
  const std::vector<Target> targets = available_targets();
  if (name.empty()) {
    Target best = targets.back();
    if (best.dot != nullptr) best.dot_max_tokens = best.dot->direct_tokens;
    return best;
  }
  for (const Target& target : targets) {
    if (target.name == name) return target;
  }
  const bool known =
      std::find(target_names.begin(), target_names.end(), name) != target_names.end();
  throw Error(
      known ? ErrorCode::unsupported : ErrorCode::invalid_argument,
      std::string(target_variable) + "=" + std::string(name) +
          (known ? ": this build or this machine has no such instructions" : ": no such target") +
          "; use one of " + list_names(targets) + ", or unset it");
}

Target chosen_target() {
  const char* const value = std::getenv(target_variable);
  return find_target(value == nullptr ? "" : value);
}

}  // namespace slimgemm::cpu
