// SPDX-License-Identifier: Apache-2.0
// What the CUDA runtime of this build says about the machine.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::judge {

/// A GPU that this process sees.
struct CudaDevice {
  int ordinal = 0;  ///< as cuda_device of the library and --device of CUDA programs count
  std::string name;
  std::string compute_capability;  ///< "9.0"
  int sm_count = 0;                ///< streaming multiprocessors
  std::uint64_t memory_bytes = 0;
  bool runs_kernels = false;  ///< the kernels of this build are machine code for it
};

struct CudaFacts {
  std::string toolkit;      ///< that the build was made with, "13.0"; empty: no GPU backend
  std::string driver_cuda;  ///< newest CUDA that the driver supports, "13.0"; empty: no driver
  std::string problem;      ///< why the runtime finds no device, in its words; empty if it does
  std::vector<CudaDevice> devices;
  std::string cublas;  ///< version and place; else why there is none
};

/// Never throws: what does not work is told in `problem`.
CudaFacts cuda_facts();

}  // namespace slimgemm::judge
