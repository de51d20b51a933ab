// SPDX-License-Identifier: Apache-2.0
// What the report says about the build and the host machine.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace slimgemm::judge {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// The version, the commit at configure time ("unknown" outside a git checkout), the compiler.
std::string build_version();
std::string build_commit();
std::string build_compiler();

/// Model name of the CPU; "unknown" where the system does not say.
std::string cpu_model();
/// Largest cache that the system reports for CPU 0, in bytes; 32 MiB where it reports none.
std::size_t last_level_cache_bytes();
/// CPU model, hardware threads, caches, compiler.
Facts host_facts();

}  // namespace slimgemm::judge
