// SPDX-License-Identifier: Apache-2.0
// What the doctor looks at: facts about the build, the processor and the GPUs, and results of
// kernels that were tried. A test can make up a machine.
#pragma once

#include "judge/cuda_facts.hpp"
#include "judge/nvidia_driver.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::doctor {

/// A library that the build may have been made with.
struct BuildPart {
  std::string key;      ///< "json"
  std::string name;     ///< "JSON and HTML reports"
  std::string library;  ///< what brings it: "nlohmann-json"
  std::string package;  ///< of Debian and Ubuntu: "nlohmann-json3-dev"
  std::string without;  ///< what a build without it can't do
  bool built = false;
};

/// Kernels that multiplied a small matrix whose result is known exactly.
struct SelfTest {
  std::string what;     ///< "avx512"; "NVIDIA H200, device 0"
  std::string kernels;  ///< those that ran: "cpu/avx512/split12/direct_t1, ..."
  std::string problem;  ///< what went wrong; empty: every bit was right
};

struct Processor {
  std::string architecture;  ///< "x86_64"
  std::string model;
  unsigned threads = 0;
  std::uint64_t memory_bytes = 0;
  /// Of the instruction sets that kernels exist for, those that this processor has: "AVX2",
  /// "AVX-512", "AVX-512 BF16".
  std::vector<std::string> instructions;
  std::vector<std::string> kernels;  ///< targets that can run here, best last
  std::string chosen;                ///< the target that a Linear takes; empty: none, see problem
  std::string problem;               ///< why there is no choice (SLIMGEMM_CPU_TARGET)
  std::string forced;                ///< value of SLIMGEMM_CPU_TARGET; empty: unset
};

/// GPU kernels and plans that the library carries, whatever the machine.
struct KernelTables {
  std::size_t stream = 0;       ///< instances for few tokens and FP32 layers
  std::size_t tile = 0;         ///< instances for more tokens
  std::size_t tuned_plans = 0;  ///< lines of the table of tuned plans
  std::string problem;          ///< why that table is not used; empty if it is
};

struct Machine {
  std::string version, commit, compiler;
  std::vector<BuildPart> parts;
  Processor processor;
  KernelTables tables;
  judge::DriverFacts driver;
  judge::CudaFacts cuda;
  std::string visible_devices;  ///< value of CUDA_VISIBLE_DEVICES, "" too; see below
  bool hides_devices = false;   ///< CUDA_VISIBLE_DEVICES is set
  std::vector<SelfTest> cpu_tests;
  std::vector<SelfTest> gpu_tests;  ///< one a device that runs the kernels
};

/// Looks at this machine and, with `run_kernels`, tries every kind of kernel that it has: about a
/// second. Never throws for what is missing or broken: the facts say so.
Machine this_machine(bool run_kernels = true);

/// Packs a small matrix with exceptions, unpacks it and multiplies it, on the CPU with each of the
/// kernels that this machine has, and compares every bit.
std::vector<SelfTest> test_cpu();
/// The same on each of these GPUs that runs the kernels.
std::vector<SelfTest> test_gpus(const std::vector<judge::CudaDevice>& devices);

}  // namespace slimgemm::doctor
