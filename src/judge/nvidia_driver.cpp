// SPDX-License-Identifier: Apache-2.0
#include "judge/nvidia_driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>

namespace slimgemm::judge {
namespace {

constexpr const char* library_name = "libnvidia-ml.so.1";
constexpr std::size_t text_bytes = 96;

// nvmlReturn_t is an enum with 0 for success, nvmlDevice_t a pointer to what only the library
// knows.
using Status = int;
using Device = void*;
struct Memory {
  unsigned long long total, free, used;
};

class Nvml {
 public:
  Nvml() : library_(dlopen(library_name, RTLD_NOW | RTLD_LOCAL)) {}

  [[nodiscard]] bool is_loaded() const { return library_ != nullptr; }

  /// The function of that name; null where this driver has none.
  template <class... Arguments>
  [[nodiscard]] auto function(const char* name) const {
    return reinterpret_cast<Status (*)(Arguments...)>(dlsym(library_.get(), name));
  }

  /// Calls it; false where it is missing or fails.
  template <class... Arguments>
  bool call(const char* name, Arguments... arguments) const {
    const auto called = function<Arguments...>(name);
    return called != nullptr && called(arguments...) == 0;
  }

  [[nodiscard]] std::string describe(Status status) const {
    using Describe = const char* (*)(Status);
    const auto text = reinterpret_cast<Describe>(dlsym(library_.get(), "nvmlErrorString"));
    return text == nullptr ? fmt::format("error {}", status) : std::string(text(status));
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> library_;
};

DriverGpu describe_gpu(const Nvml& nvml, unsigned index) {
  DriverGpu gpu;
  Device device = nullptr;
  if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", index, &device)) return gpu;
  std::array<char, text_bytes> name{};
  if (nvml.call("nvmlDeviceGetName", device, name.data(), static_cast<unsigned>(name.size()))) {
    gpu.name = name.data();
  }
  int major = 0;
  int minor = 0;
  if (nvml.call("nvmlDeviceGetCudaComputeCapability", device, &major, &minor)) {
    gpu.compute_capability = fmt::format("{}.{}", major, minor);
  }
  Memory memory{};
  if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) gpu.memory_bytes = memory.total;
  return gpu;
}

}  // namespace

DriverFacts nvidia_driver() {
  DriverFacts facts;
  const Nvml nvml;
  if (!nvml.is_loaded()) {
    facts.problem = fmt::format("its library {} is not installed", library_name);
    return facts;
  }
  const auto init = nvml.function<>("nvmlInit_v2");
  if (init == nullptr) {
    facts.problem = fmt::format("its library {} has no nvmlInit_v2", library_name);
    return facts;
  }
  if (const Status status = init(); status != 0) {
    facts.problem = fmt::format("{} says: {}", library_name, nvml.describe(status));
    return facts;
  }
  std::array<char, text_bytes> version{};
  if (nvml.call("nvmlSystemGetDriverVersion", version.data(),
                static_cast<unsigned>(version.size()))) {
    facts.version = version.data();
  } else {
    facts.problem = fmt::format("{} does not tell the driver's version", library_name);
  }
  unsigned count = 0;
  if (nvml.call("nvmlDeviceGetCount_v2", &count)) {
    for (unsigned i = 0; i < count; ++i) facts.gpus.push_back(describe_gpu(nvml, i));
  }
  nvml.call("nvmlShutdown");
  return facts;
}

std::string driver_version() {
  const DriverFacts facts = nvidia_driver();
  return facts.version.empty() ? "unknown" : facts.version;
}

}  // namespace slimgemm::judge
