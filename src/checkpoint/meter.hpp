// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace slimgemm::checkpoint {

/// Told now and then: what is worked on, bytes done, bytes in all (of the unpacked checkpoint).
using ProgressFunction =
    std::function<void(const std::string& stage, std::uint64_t done, std::uint64_t total)>;

/// Adds up the bytes that are done.
class Meter {
 public:
  explicit Meter(ProgressFunction function) : function_(std::move(function)) {}

  void begin(std::uint64_t total_bytes) {
    total_ = total_bytes;
    done_ = 0;
  }
  void stage(const std::string& name) {
    stage_ = name;
    add(0);
  }
  void add(std::uint64_t bytes) {
    done_ += bytes;
    if (function_) function_(stage_, done_, total_);
  }

 private:
  ProgressFunction function_;
  std::string stage_;
  std::uint64_t done_ = 0;
  std::uint64_t total_ = 0;
};

}  // namespace slimgemm::checkpoint
