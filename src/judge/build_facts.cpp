// SPDX-License-Identifier: Apache-2.0
// SLIMGEMM_VERSION and SLIMGEMM_COMMIT are set for this file alone, so that a new commit compiles
// nothing else again.
#include "judge/host_facts.hpp"

namespace slimgemm::judge {

std::string build_version() { return SLIMGEMM_VERSION; }
std::string build_commit() { return SLIMGEMM_COMMIT; }

std::string build_compiler() {
#if defined(__clang__)
  return __VERSION__;
#else
  return "GCC " __VERSION__;
#endif
}

}  // namespace slimgemm::judge
