// SPDX-License-Identifier: Apache-2.0
#include "judge/progress.hpp"

#include <fmt/format.h>

#include <cmath>

namespace slimgemm::judge {
namespace {

constexpr double plain_line_interval_s = 5;
constexpr double estimate_from = 0.02;  // earlier, an estimate of the rest is a guess

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<long>(std::lround(seconds));
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

Progress::Progress(std::FILE* stream, bool is_terminal)
    : stream_(stream), is_terminal_(is_terminal) {
  last_line_ = start_ - std::chrono::hours(1);
}

Progress::~Progress() { clear(); }

void Progress::update(const std::string& stage, double done) {
  const Clock::time_point now = Clock::now();
  const double elapsed_s = std::chrono::duration<double>(now - start_).count();
  std::string line =
      fmt::format("{:3.0f} %  {}  elapsed {}", done * 100, stage, format_duration(elapsed_s));
  if (done >= estimate_from && done < 1) {
    line += fmt::format(", about {} left", format_duration(elapsed_s / done * (1 - done)));
  }
  if (is_terminal_) {
    fmt::print(stream_, "\r{:<78}", line);
    line_open_ = true;
  } else {
    if (std::chrono::duration<double>(now - last_line_).count() < plain_line_interval_s) return;
    last_line_ = now;
    fmt::print(stream_, "{}\n", line);
  }
  std::fflush(stream_);
}

void Progress::clear() {
  if (!line_open_) return;
  fmt::print(stream_, "\r{:78}\r", "");
  std::fflush(stream_);
  line_open_ = false;
}

}  // namespace slimgemm::judge
