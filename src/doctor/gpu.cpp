// SPDX-License-Identifier: Apache-2.0
// The GPU's part of the diagnosis: build, driver, devices, kernels, in the order in which each
// needs the one before.
#include "doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace slimgemm::doctor {
namespace {

constexpr const char* kernel_capability = "9.0";
constexpr const char* toolkit_min = "12.4";

bool has_hopper(const judge::DriverFacts& driver) {
  return std::any_of(driver.gpus.begin(), driver.gpus.end(), [](const judge::DriverGpu& gpu) {
    return gpu.compute_capability == kernel_capability;
  });
}

std::string list_gpus(const judge::DriverFacts& driver) {
  std::string list;
  for (const judge::DriverGpu& gpu : driver.gpus) {
    if (!list.empty()) list += ", ";
    list += gpu.name.empty() ? "a GPU without a name" : gpu.name;
    if (!gpu.compute_capability.empty()) {
      list += fmt::format(" (compute capability {})", gpu.compute_capability);
    }
  }
  return list;
}

Finding diagnose_backend(const Machine& machine) {
  if (!machine.cuda.toolkit.empty()) {
    return {"gpu.backend", Level::ok,
            fmt::format("GPU backend: yes, built with the CUDA toolkit {}", machine.cuda.toolkit),
            ""};
  }
  const std::string remedy = fmt::format(
      "install the CUDA toolkit {} or newer, so that nvcc is on PATH, configure with "
      "-DSLIMGEMM_CUDA=ON and build again",
      toolkit_min);
  if (has_hopper(machine.driver)) {
    return {"gpu.backend", Level::problem,
            "GPU backend: not in this build, though this machine has a GPU that it would run on",
            remedy};
  }
  return {"gpu.backend", Level::absent, "GPU backend: not in this build; layers run on the CPU",
          "for a Hopper GPU (H100, H200): " + remedy};
}

Finding diagnose_driver(const Machine& machine) {
  const judge::DriverFacts& driver = machine.driver;
  if (driver.version.empty()) {
    return {"gpu.driver", Level::absent, "NVIDIA driver: none that answers; " + driver.problem,
            "if this machine has an NVIDIA GPU: install its driver, until nvidia-smi lists the GPU "
            "(in a container: start it with access to the GPUs, such as docker run --gpus all)"};
  }
  std::string text = "NVIDIA driver: " + driver.version;
  if (!machine.cuda.driver_cuda.empty()) {
    text += fmt::format(", for CUDA up to {}", machine.cuda.driver_cuda);
  }
  text += driver.gpus.empty() ? "; it lists no GPU" : "; it lists " + list_gpus(driver);
  return {"gpu.driver", Level::ok, text, ""};
}

// Why a build with CUDA sees no device.
Finding diagnose_no_device(const Machine& machine) {
  const judge::CudaFacts& cuda = machine.cuda;
  if (machine.driver.version.empty() || machine.driver.gpus.empty()) {
    return {"gpu.devices", Level::absent,
            fmt::format("GPUs for CUDA: none ({}); layers run on the CPU",
                        cuda.problem.empty() ? "no device" : cuda.problem),
            ""};
  }
  if (cuda.problem.find("InsufficientDriver") != std::string::npos) {
    return {"gpu.devices", Level::problem,
            fmt::format("GPUs for CUDA: none; the driver {} supports CUDA up to {}, this build "
                        "needs {}",
                        machine.driver.version, cuda.driver_cuda, cuda.toolkit),
            fmt::format("install a newer driver, or build with a CUDA toolkit of at most {} (at "
                        "least {} is needed)",
                        cuda.driver_cuda, toolkit_min)};
  }
  if (machine.hides_devices) {
    return {"gpu.devices", Level::problem,
            fmt::format("GPUs for CUDA: none, as CUDA_VISIBLE_DEVICES is \"{}\"",
                        machine.visible_devices),
            "unset CUDA_VISIBLE_DEVICES, or set it to the number of a GPU, counted from 0"};
  }
  return {"gpu.devices", Level::problem,
          fmt::format("GPUs for CUDA: none, though the driver lists some: {}",
                      cuda.problem.empty() ? "no device" : cuda.problem),
          "see whether another program made with CUDA works; restart the driver or the machine if "
          "none does"};
}

Finding diagnose_device(const judge::CudaDevice& device) {
  const std::string text =
      fmt::format("device {}: {}, compute capability {}, {} SMs, {:.1f} GiB", device.ordinal,
                  device.name, device.compute_capability, device.sm_count,
                  static_cast<double>(device.memory_bytes) / (1ULL << 30));
  const std::string key = fmt::format("gpu.device.{}", device.ordinal);
  if (device.runs_kernels) return {key, Level::ok, text, ""};
  return {key, Level::absent,
          fmt::format("{}; the GPU kernels are for {} (Hopper) alone", text, kernel_capability),
          "use an H100 or H200, or run layers on the CPU"};
}

void add_tables(const Machine& machine, std::vector<Finding>& findings) {
  const KernelTables& tables = machine.tables;
  findings.push_back(
      {"gpu.kernels", Level::ok,
       fmt::format("GPU kernels: {} for few tokens and FP32 layers, {} for more tokens",
                   tables.stream, tables.tile),
       ""});
  if (tables.problem.empty()) {
    findings.push_back({"gpu.plans", Level::ok,
                        fmt::format("tuned plans: {}; other shapes get the cost model's choice",
                                    tables.tuned_plans),
                        ""});
  } else {
    findings.push_back({"gpu.plans", Level::problem,
                        "tuned plans: not used, their table has an error: " + tables.problem,
                        "correct tuning/plans.csv and build again; until then the cost model "
                        "chooses the kernels"});
  }
}

}  // namespace

Section diagnose_gpu(const Machine& machine) {
  Section section{"GPU", {diagnose_backend(machine), diagnose_driver(machine)}};
  auto& findings = section.findings;
  if (machine.cuda.toolkit.empty()) return section;
  if (machine.cuda.devices.empty()) findings.push_back(diagnose_no_device(machine));
  for (const judge::CudaDevice& device : machine.cuda.devices) {
    findings.push_back(diagnose_device(device));
  }
  add_tables(machine, findings);
  for (const SelfTest& test : machine.gpu_tests) {
    const std::string key = "gpu.test." + test.what;
    if (test.problem.empty()) {
      findings.push_back(
          {key, Level::ok,
           fmt::format("tried {}: multiplied packed weights, every bit is right", test.what), ""});
    } else {
      findings.push_back({key, Level::problem, fmt::format("tried {}: {}", test.what, test.problem),
                          "if the message speaks of memory, free some on this GPU and try again; "
                          "otherwise do not use this build on it, and please report this text"});
    }
  }
  const bool has_cublas =
      !machine.cuda.cublas.empty() && machine.cuda.cublas.find(", ") != std::string::npos;
  findings.push_back(
      {"gpu.cublas", has_cublas ? Level::ok : Level::absent,
       fmt::format("cuBLAS, the judge's baseline on a GPU: {}", machine.cuda.cublas),
       has_cublas ? ""
                  : "set SLIMGEMM_CUBLAS_DIR to the folder that holds libcublas.so and "
                    "libcublasLt.so of CUDA 12 or 13; SlimGEMM's own kernels do not need it"});
  return section;
}

}  // namespace slimgemm::doctor
