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

/// What the judge wrote and what its times give must agree to the last digit that is shown.
constexpr double score_tolerance = 0.0005;

int run_score(const ScoreOptions& options) {
  const lab::TimesTable table = lab::read_times(options.path);
  const lab::Score score = lab::compute_score(table, options.weight_bits);
  fmt::print("{}", lab::score_text(score, table, options.weight_bits));
  int exit_code = exit_ok;
  if (!table.judged_correct) {
    fmt::print("\nThe judge found wrong results in this run: the times do not count.\n");
    exit_code = exit_failed;
  }
  if (table.stated_score && score.score &&
      std::abs(*table.stated_score - *score.score) > score_tolerance) {
    fmt::print("\nThe file states the score {:.3f}, its times give {:.3f}: it was edited.\n",
               *table.stated_score, *score.score);
    exit_code = exit_failed;
  }
  return exit_code;
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
