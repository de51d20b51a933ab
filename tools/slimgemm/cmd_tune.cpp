// SPDX-License-Identifier: Apache-2.0
// slimgemm tune: times every kernel instance on a GPU and writes what the plan looks up.
#include "cmd_common.hpp"
#include "commands.hpp"

#include "judge/host_facts.hpp"
#include "judge/progress.hpp"
#include "judge/report.hpp"
#include "judge/shape_file.hpp"
#include "tune/layers.hpp"
#include "tune/report.hpp"
#include "tune/table.hpp"
#include "tune/tune.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::cli {
namespace {

constexpr int replays_max = 100'000;

struct TuneArguments {
  std::vector<std::string> layers;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string encoding;
  std::string shapes;
  std::vector<std::int64_t> tokens;
  int replays = tune::Options{}.final_rounds;
  std::optional<double> exceptions;
  std::string json;
  std::string table;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// The shapes of a file, each layer with its own token counts unless --m names others.
void add_file(const TuneArguments& arguments, std::vector<tune::Job>& jobs) {
  const judge::Problem problem = judge::read_shape_file(arguments.shapes);
  for (const judge::LayerInfo& layer : problem.layers) {
    std::vector<std::int64_t> tokens = arguments.tokens;
    if (tokens.empty()) {
      for (const judge::Case& c : problem.cases) {
        if (c.layer == layer.layer) tokens.push_back(c.m);
      }
    }
    tune::add_job(jobs, layer, arguments.encoding, tokens);
  }
}

std::vector<tune::Job> choose_jobs(const TuneArguments& arguments) {
  const bool sizes = arguments.n != 0 || arguments.k != 0;
  if (sizes + !arguments.layers.empty() + !arguments.shapes.empty() > 1) {
    refuse("--layer, --n with --k, and --shapes exclude each other: give one of them");
  }
  std::vector<tune::Job> jobs;
  if (!arguments.shapes.empty()) {
    add_file(arguments, jobs);
    return jobs;
  }
  const std::vector<std::int64_t>& tokens =
      arguments.tokens.empty() ? tune::default_tokens : arguments.tokens;
  if (sizes) {
    const Encoding encoding = arguments.encoding.empty()
                                  ? Encoding::split12
                                  : tune::parse_encoding("--encoding", arguments.encoding);
    tune::add_job(jobs, tune::plain_layer(arguments.n, arguments.k, encoding), arguments.encoding,
                  tokens);
  } else if (arguments.layers.empty()) {
    for (const judge::LayerInfo& layer : judge::layers()) {
      tune::add_job(jobs, layer, arguments.encoding, tokens);
    }
  } else {
    for (const std::string& name : arguments.layers) {
      tune::add_job(jobs, tune::find_layer("--layer", name), arguments.encoding, tokens);
    }
  }
  return jobs;
}

tune::Facts facts_of(const TuneArguments& arguments, const judge::Executor& executor) {
  tune::Facts facts;
  facts.command_line = command_line();
  facts.version = judge::build_version();
  facts.commit = judge::build_commit();
  facts.date = judge::utc_now();
  facts.exception_share = arguments.exceptions;
  facts.device = executor.describe();
  for (const auto& [key, value] : judge::host_facts()) {
    facts.device.emplace_back("host_" + key, value);
  }
  return facts;
}

void write_table(const std::string& path, const tune::Result& result, const tune::Facts& facts,
                 const plan::TuningText& old) {
  const auto fresh = tune::tuned_plans(result, tune::source_text(facts));
  const auto merged = tune::merge(old.entries, fresh);
  judge::write_file(path, tune::table_text(merged));
  fmt::print("{}: {} entries of this run, {} in all\n", path, fresh.size(), merged.size());
}

int run_tune(const TuneArguments& arguments) {
  // What cannot work is told before the work.
  const std::vector<tune::Job> jobs = choose_jobs(arguments);
  if (!arguments.json.empty() && !tune::json_available()) {
    refuse("--json needs a build with nlohmann-json (nlohmann-json3-dev)");
  }
  require_folder("--json", arguments.json);
  require_folder("--table", arguments.table);
  plan::TuningText old;
  if (!arguments.table.empty()) {
    if (arguments.exceptions) {
      refuse("--table with --exceptions: the plan needs times of weights as they are");
    }
    old = tune::read_table_file(arguments.table);
    for (const std::string& text : old.unknown_instances) {
      fmt::print(stderr, "left out of the new table: {}\n", text);
    }
  }
  tune::Machine machine = tune::make_cuda_machine(arguments.exceptions);
  const tune::Facts facts = facts_of(arguments, *machine.executor);

  tune::Result result;
  {
    judge::Progress progress(stderr, isatty(STDERR_FILENO) != 0);
    tune::Options options;
    options.final_rounds = arguments.replays;
    options.progress = [&](const std::string& stage, double done) { progress.update(stage, done); };
    options.found = [&](const tune::ShapeResult& shape) {
      progress.clear();
      fmt::print("{}", tune::shape_text(shape));
      std::fflush(stdout);
    };
    result = tune::search(machine, jobs, options);
  }
  fmt::print("\n{}", tune::summary_text(result));
  if (!arguments.json.empty()) judge::write_file(arguments.json, tune::json_text(result, facts));
  if (!arguments.table.empty()) write_table(arguments.table, result, facts, old);
  return result.has_failures() ? exit_failed : exit_ok;
}

}  // namespace

void add_tune(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "tune", "Time every GPU kernel on a layer; write the table that the plan looks up");
  const auto arguments = std::make_shared<TuneArguments>();
  TuneArguments& a = *arguments;
  command
      ->add_option("--layer", a.layers, "Layers of the judge, separated by commas (default: all)")
      ->delimiter(',');
  command->add_option("--n", a.n, "Output features of another layer");
  command->add_option("--k", a.k, "Its input features");
  command->add_option("--shapes", a.shapes, "Layers and token counts from a JSON file");
  command
      ->add_option("--m", a.tokens,
                   "Token counts, separated by commas (default: those of the file, or "
                   "1,8,16,32,48,64,128,256)")
      ->delimiter(',');
  command->add_option("--encoding", a.encoding,
                      "split12, raw16 or raw32 (default: split12, for FP32 layers raw32)");
  command->add_option("--replays", a.replays, "Timed replays of the instances near the best")
      ->check(CLI::Range(1, replays_max))
      ->capture_default_str();
  command
      ->add_option("--exceptions", a.exceptions,
                   "Weights of which this share does not fit 12 bits, 0 to 1 (default: as normal "
                   "weights have them)")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--json", a.json, "Write all measurements as JSON");
  command->add_option("--table", a.table,
                      "Write the fastest instances to a table of tuned plans, or merge them into "
                      "one; tuning/plans.csv is the one that the build takes");
  command->callback([arguments, &exit_code] { exit_code = run_tune(*arguments); });
}

}  // namespace slimgemm::cli
