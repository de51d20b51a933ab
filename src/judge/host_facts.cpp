// SPDX-License-Identifier: Apache-2.0
#include "judge/host_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <thread>

namespace slimgemm::judge {
namespace {

constexpr std::size_t assumed_cache_bytes = std::size_t{32} << 20;

struct Cache {
  int level = 0;
  std::string type;
  std::size_t size_bytes = 0;
};

// "2048K" or "260M", as the kernel writes them.
std::size_t parse_cache_size(const std::string& text) {
  std::size_t value = 0;
  std::size_t i = 0;
  for (; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i) {
    value = value * 10 + static_cast<std::size_t>(text[i] - '0');
  }
  if (i < text.size() && text[i] == 'K') value <<= 10;
  if (i < text.size() && text[i] == 'M') value <<= 20;
  return value;
}

std::vector<Cache> caches_of_cpu0() {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const auto folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    std::ifstream level(folder + "level");
    std::ifstream type(folder + "type");
    std::ifstream size(folder + "size");
    Cache cache;
    std::string size_text;
    if (!(level >> cache.level) || !(type >> cache.type) || !(size >> size_text)) return caches;
    cache.size_bytes = parse_cache_size(size_text);
    caches.push_back(cache);
  }
}

}  // namespace

std::string cpu_model() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string line;
  while (std::getline(cpuinfo, line)) {
    const auto colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
  for (const Cache& cache : caches_of_cpu0()) largest = std::max(largest, cache.size_bytes);
  return largest == 0 ? assumed_cache_bytes : largest;
}

Facts host_facts() {
  std::string caches;
  for (const Cache& cache : caches_of_cpu0()) {
    if (!caches.empty()) caches += ", ";
    const char* kind = cache.type == "Data" ? "d" : cache.type == "Instruction" ? "i" : "";
    caches += fmt::format("L{}{} {} KiB", cache.level, kind, cache.size_bytes >> 10);
  }
  return {{"cpu", cpu_model()},
          {"hardware_threads", std::to_string(std::thread::hardware_concurrency())},
          {"caches", caches.empty() ? "unknown" : caches},
          {"compiler", build_compiler()}};
}

}  // namespace slimgemm::judge
