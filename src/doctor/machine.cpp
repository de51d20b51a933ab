// SPDX-License-Identifier: Apache-2.0
#include "doctor/machine.hpp"

#include "cpu/targets.hpp"
#include "judge/host_facts.hpp"
#include "plan/tuning_table.hpp"

#include <slimgemm/error.hpp>

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace slimgemm::doctor {
namespace {

std::vector<BuildPart> build_parts() {
  std::vector<BuildPart> parts = {
      {"highway", "CPU kernels with SIMD instructions", "Highway", "libhwy-dev",
       "layers on the CPU run a plain kernel, many times slower", SLIMGEMM_HAVE_HIGHWAY},
      {"xxhash", "checksums of packed data, checkpoints", "xxHash", "libxxhash-dev",
       "packed data is written without checksums and read unchecked, and the command can't read "
       "checkpoints",
       SLIMGEMM_HAVE_XXHASH},
      {"json", "checkpoints, shape files, reports as JSON and HTML", "nlohmann-json",
       "nlohmann-json3-dev",
       "the command can't read checkpoints or shape files, nor write JSON and HTML",
       SLIMGEMM_HAVE_JSON},
      {"onednn", "oneDNN as the judge's baseline on the CPU", "oneDNN", "libdnnl-dev",
       "slimgemm judge has nothing to compare with on the CPU", SLIMGEMM_HAVE_ONEDNN},
      {"cblas", "fast references of the judge on the CPU", "OpenBLAS", "libopenblas-dev",
       "slimgemm judge computes its references with a plain loop: the same, but slowly",
       SLIMGEMM_HAVE_CBLAS}};
  return parts;
}

std::uint64_t host_memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages < 0 || page_bytes < 0) return 0;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page_bytes);
}

std::vector<std::string> known_instructions() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) {
    found.emplace_back("AVX2");
  }
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0) {
    found.emplace_back("AVX-512");
  }
  if (__builtin_cpu_supports("avx512bf16") != 0) found.emplace_back("AVX-512 BF16");
#endif
  return found;
}

Processor this_processor() {
  Processor processor;
  utsname system{};
  if (uname(&system) == 0) processor.architecture = system.machine;
  processor.model = judge::cpu_model();
  processor.threads = std::thread::hardware_concurrency();
  processor.memory_bytes = host_memory_bytes();
  processor.instructions = known_instructions();
  for (const cpu::Target& target : cpu::available_targets()) {
    processor.kernels.emplace_back(target.name);
  }
  const char* forced = std::getenv(cpu::target_variable);
  if (forced != nullptr) processor.forced = forced;
  try {
    processor.chosen = cpu::chosen_target().name;
  } catch (const Error& error) {
    processor.problem = error.what();
  }
  return processor;
}

KernelTables kernel_tables() {
  KernelTables tables;
  tables.stream = plan::stream_count;
  tables.tile = plan::tile_count;
  tables.tuned_plans = plan::shipped_tuning_table().entries().size();
  const std::vector<std::string>& errors = plan::shipped_tuning_errors();
  if (!errors.empty()) tables.problem = errors.front();
  return tables;
}

}  // namespace

Machine this_machine(bool run_kernels) {
  Machine machine;
  machine.version = judge::build_version();
  machine.commit = judge::build_commit();
  machine.compiler = judge::build_compiler();
  machine.parts = build_parts();
  machine.processor = this_processor();
  machine.tables = kernel_tables();
  machine.driver = judge::nvidia_driver();
  machine.cuda = judge::cuda_facts();
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    machine.hides_devices = true;
    machine.visible_devices = visible;
  }
  if (run_kernels) {
    machine.cpu_tests = test_cpu();
    machine.gpu_tests = test_gpus(machine.cuda.devices);
  }
  return machine;
}

}  // namespace slimgemm::doctor
