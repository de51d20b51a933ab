// SPDX-License-Identifier: Apache-2.0
// What the NVIDIA driver says, asked through its management library (NVML), which is loaded when it
// is there: a build without CUDA can ask, too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// A GPU as the driver sees it, whether or not this process may use it.
struct DriverGpu {
  std::string name;                ///< "NVIDIA H200"; empty: the driver did not say
  std::string compute_capability;  ///< "9.0"; empty: the driver did not say
  std::uint64_t memory_bytes = 0;  ///< 0: the driver did not say
};

struct DriverFacts {
  std::string version;  ///< "580.65.06"; empty: no driver that answers
  std::string problem;  ///< why there is no answer; empty if there is one
  std::vector<DriverGpu> gpus;
};

DriverFacts nvidia_driver();

/// Its version; "unknown" where none answers.
std::string driver_version();

}  // namespace slimgemm::judge
