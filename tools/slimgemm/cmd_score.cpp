// SPDX-License-Identifier: Apache-2.0
// slimgemm score: the score from a table of times.
#include "commands.hpp"
#include "lab/score.hpp"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <string>

namespace slimgemm::cli {
namespace {

struct ScoreOptions {
  std::string path;
  double weight_bits = 16;
};

/// A score in the file and that of its times are the same figure but for its last digits.
constexpr double score_tolerance = 1e-6;

/// What a report of the judge says against its own times; empty if nothing.
std::string objection(const lab::TimesTable& table, const lab::Score& score) {
  if (table.verdict == "failed") {
    return "The contender broke a rule in this run (verdict: failed): its times do not count.";
  }
  if (table.verdict == "invalid") {
    return "The baseline broke a rule in this run (verdict: invalid): the speedups do not count.";
  }
  if (table.stated_score && std::abs(*table.stated_score - score.score.value_or(0)) >
                                score_tolerance * *table.stated_score) {
    return fmt::format(
        "The file states the score {:.3f}, which its times do not give: it was edited.",
        *table.stated_score);
  }
  return {};
}

int run_score(const ScoreOptions& options) {
  const lab::TimesTable table = lab::read_times(options.path);
  const lab::Score score = lab::compute_score(table, options.weight_bits);
  fmt::print("{}", lab::score_text(score, table, options.weight_bits));
  const std::string against = objection(table, score);
  if (!against.empty()) {
    fmt::print("\n{}\n", against);
  }
  return against.empty() ? exit_ok : exit_failed;
}

}  // namespace

void add_score(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<ScoreOptions>();
  CLI::App* command = app.add_subcommand(
      "score", "Recompute the score from a table of times, and show the distance to the floors");
  command
      ->add_option("times", options->path,
                   "CSV table (labs/README.md) or a JSON report of slimgemm judge")
      ->required();
  command->add_option("--weight-bits", options->weight_bits,
                      "Also show the floors with BF16 weights stored in so many bits");
  command->callback([options, &exit_code] { exit_code = run_score(*options); });
}

}  // namespace slimgemm::cli
