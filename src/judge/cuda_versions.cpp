// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_versions.hpp"

#include <dlfcn.h>

#include <array>
#include <memory>

namespace slimgemm::judge {

std::string driver_version() {
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  const std::unique_ptr<void, Close> library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL));
  if (library == nullptr) return "unknown";
  // nvmlReturn_t is an enum with 0 for success.
  using NoArguments = int (*)();
  using GetVersion = int (*)(char*, unsigned);
  const auto init = reinterpret_cast<NoArguments>(dlsym(library.get(), "nvmlInit_v2"));
  const auto shutdown = reinterpret_cast<NoArguments>(dlsym(library.get(), "nvmlShutdown"));
  const auto get = reinterpret_cast<GetVersion>(dlsym(library.get(), "nvmlSystemGetDriverVersion"));
  if (init == nullptr || shutdown == nullptr || get == nullptr || init() != 0) return "unknown";
  std::array<char, 96> version{};
  const bool ok = get(version.data(), static_cast<unsigned>(version.size())) == 0;
  shutdown();
  return ok ? std::string(version.data()) : "unknown";
}

}  // namespace slimgemm::judge
