// SPDX-License-Identifier: Apache-2.0
// One line about long work: rewritten in place on a terminal, now and then a plain line elsewhere.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace slimgemm::judge {

/// "0:07", "12:34".
std::string format_duration(double seconds);

class Progress {
 public:
  /// Writes to `stream`; is_terminal: rewrite the line.
  Progress(std::FILE* stream, bool is_terminal);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `done` is the share of the work that is done, 0 to 1.
  void update(const std::string& stage, double done);
  /// Clears the line, so that other output can follow.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::FILE* stream_;
  bool is_terminal_;
  bool line_open_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_line_;
};

}  // namespace slimgemm::judge
