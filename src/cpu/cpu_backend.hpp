// SPDX-License-Identifier: Apache-2.0
// The CPU behind Linear.
#pragma once

#include "cpu/targets.hpp"
#include "linear/backend.hpp"

#include <memory>

namespace slimgemm::cpu {

/// As make_cpu_backend, with the given kernels in place of those that the environment chooses.
std::shared_ptr<const Linear::Backend> make_backend_for(const Target& target,
                                                        const PackedMatrix& weights,
                                                        const LinearOptions& options);

}  // namespace slimgemm::cpu
