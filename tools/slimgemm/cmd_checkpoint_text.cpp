// SPDX-License-Identifier: Apache-2.0
#include "checkpoint_text.hpp"

#include "judge/progress.hpp"
#include "support/visible_text.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace slimgemm::cli {
namespace {

constexpr int examples_max = 3;

// Reasons with their tensors, the most frequent first.
std::vector<std::pair<std::string, std::vector<std::string>>> by_reason(
    const std::vector<checkpoint::KeptTensor>& kept) {
  std::map<std::string, std::vector<std::string>> reasons;
  for (const auto& tensor : kept) reasons[tensor.why].push_back(tensor.name);
  std::vector<std::pair<std::string, std::vector<std::string>>> sorted(reasons.begin(),
                                                                       reasons.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  return sorted;
}

}  // namespace

std::string rate_text(std::uint64_t bytes, double seconds) {
  const double rate = seconds > 0 ? static_cast<double>(bytes) / seconds : 0;
  return fmt::format(" in {:.1f} s ({}/s)", seconds, bytes_text(rate, 1));
}

std::string pack_text(const checkpoint::PackSummary& s, bool all) {
  const auto percent = [](std::uint64_t part, std::uint64_t whole) {
    return 100 * static_cast<double>(part) / static_cast<double>(whole);
  };
  std::string text =
      fmt::format("{} tensors packed, {} kept as they are\n", s.tensors_packed, s.kept.size());
  if (s.weights_packed > 0) {
    text +=
        fmt::format("{:.3f} bits a weight in the packed tensors; {} exceptions ({:.4f} %)\n",
                    8 * static_cast<double>(s.packed_bytes) / static_cast<double>(s.weights_packed),
                    s.exceptions, percent(s.exceptions, s.weights_packed));
  }
  if (s.raw16_matrices > 0) {
    const bool one = s.raw16_matrices == 1;
    text += fmt::format(
        "{} {} at 16 bits a weight (raw16): too many of {} weights lie outside any "
        "16 exponents\n",
        s.raw16_matrices, one ? "matrix stays" : "matrices stay", one ? "its" : "their");
  }
  for (const auto& [why, names] : by_reason(s.kept)) {
    text += fmt::format("kept, {}: {}", why, visible_text(names.front()));
    for (std::size_t i = 1; i < names.size() && (all || i < examples_max); ++i) {
      text += ", " + visible_text(names[i]);
    }
    if (!all && names.size() > examples_max) {
      text += fmt::format(", and {} more", names.size() - examples_max);
    }
    text += '\n';
  }
  if (s.files_reused > 0) {
    text += fmt::format("{} of {} packed files are an earlier run's\n", s.files_reused, s.files);
  }
  return text + fmt::format("{} -> {} ({:.1f} %)\n", bytes_text(s.bytes_in),
                            bytes_text(s.bytes_out), percent(s.bytes_out, s.bytes_in));
}

checkpoint::Meter make_meter(bool quiet) {
  if (quiet) return checkpoint::Meter(nullptr);
  using Clock = std::chrono::steady_clock;
  auto progress = std::make_shared<judge::Progress>(stderr, isatty(STDERR_FILENO) != 0);
  const auto start = std::make_shared<Clock::time_point>(Clock::now());
  return checkpoint::Meter(
      [progress, start](const std::string& stage, std::uint64_t done, std::uint64_t total) {
        constexpr double rate_from_s = 1;  // earlier, a rate is a guess
        const double seconds = std::chrono::duration<double>(Clock::now() - *start).count();
        std::string text = visible_text(stage);
        if (seconds > rate_from_s && done > 0) {
          text += fmt::format("  {}/s", bytes_text(static_cast<double>(done) / seconds, 1));
        }
        const double share =
            total == 0 ? 1 : std::min(1.0, static_cast<double>(done) / static_cast<double>(total));
        progress->update(text, share);
      });
}

}  // namespace slimgemm::cli
