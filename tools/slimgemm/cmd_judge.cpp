// SPDX-License-Identifier: Apache-2.0
#include "cmd_common.hpp"
#include "commands.hpp"
#include "judge/progress.hpp"
#include "judge/report.hpp"
#include "judge/safetensors.hpp"
#include "judge_setup.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

namespace slimgemm::cli {
namespace {

using namespace slimgemm::judge;

constexpr int repeats_max = 100'000;
constexpr int queue_replays_max = 1000;
constexpr int threads_max = 1024;

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

RunResult run(const JudgeArguments& arguments, const Problem& problem, Executor& executor) {
  const int device = executor.cuda_device();
  const std::vector<std::string> names = choose_baselines(arguments, device);
  const auto make = [&](const Problem& part) {
    return make_contestants(arguments, names, device, part);
  };
  Progress progress(stderr, isatty(STDERR_FILENO) != 0);
  RunOptions options = run_options(arguments, problem, executor.is_cuda());
  options.progress = [&](const std::string& stage, double done) { progress.update(stage, done); };
  if (!problem.shape_file.empty()) return run_layer_by_layer(executor, make, options);

  const Contestants contestants = make(problem);
  std::vector<Contender*> baselines;
  for (const auto& baseline : contestants.baselines) baselines.push_back(baseline.get());
  progress.update("weights", 0);
  const Weights weights = arguments.weights.empty()
                              ? generate_weights(problem.layers, arguments.seed, arguments.threads)
                              : load_safetensors(arguments.weights, problem.layers);
  return run_judge(executor, *contestants.contender, baselines, weights, options);
}

int judge(const JudgeArguments& arguments) {
  if ((!arguments.json.empty() || !arguments.html.empty()) && !reports_available()) {
    refuse("--json and --html need a build with nlohmann-json (nlohmann-json3-dev)");
  }
  const Problem problem = choose_problem(arguments);  // what cannot work is told before the work
  if (arguments.list) {
    fmt::print("{}", problem_text(problem));
    return exit_ok;
  }
  require_folder("--json", arguments.json);
  require_folder("--html", arguments.html);
  require_folder("--markdown", arguments.markdown);
  ReportFacts facts;
  facts.command_line = command_line();
  facts.version = build_version();
  facts.commit = build_commit();
  facts.date = utc_now();
  facts.seed = arguments.seed;

  const auto executor = choose_executor(arguments);
  facts.is_cuda = executor->is_cuda();
  const RunResult result = run(arguments, problem, *executor);

  facts.device = executor->describe();
  if (facts.is_cuda) {
    for (const auto& [key, value] : host_facts()) facts.device.emplace_back("host_" + key, value);
  }
  fmt::print("{}", text_report(result, facts));
  if (!arguments.json.empty()) write_file(arguments.json, json_report(result, facts));
  if (!arguments.html.empty()) write_file(arguments.html, html_report(result, facts));
  if (!arguments.markdown.empty()) write_file(arguments.markdown, markdown_report(result, facts));
  return verdict(result) == Verdict::passed ? exit_ok : exit_failed;
}

void add_problem_options(CLI::App& command, JudgeArguments& arguments) {
  command.add_option("--shapes", arguments.shapes,
                     "judge the layers of this file instead, such as shapes/served.json");
  command.add_option("--loads", arguments.loads, "only these loads, e.g. \"decode 1,verify 16\"")
      ->delimiter(',');
  command.add_option("--layers", arguments.layers, "only these layers, e.g. pooler,router")
      ->delimiter(',');
  command.add_flag("--list", arguments.list,
                   "print the layers and token counts, and judge nothing");
  command.add_option("--seed", arguments.seed, "of weights and inputs")->capture_default_str();
  command.add_option("--weights", arguments.weights,
                     "take the five matrices from a safetensors file: qkv_gate, o, pooler, "
                     "unpooler, router");
}

void add_options(CLI::App& command, JudgeArguments& arguments) {
  command.add_option("--device", arguments.device, "auto: the GPU if there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--contender", arguments.contender,
                  "slimgemm, or a shared library (slimgemm/contender.h)")
      ->capture_default_str();
  command.add_flag("--batch-invariant", arguments.batch_invariant,
                   "judge slimgemm with the option under which a row's bits do not depend on m");
  command
      .add_option("--baseline", arguments.baselines,
                  "one, or several side by side (sglang,best-blas); auto: sglang on a GPU, onednn "
                  "on the CPU where this build has it")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "sglang", "best-blas", "onednn", "none"}))
      ->default_str("auto");
  add_problem_options(command, arguments);
  command
      .add_option("--repeats", arguments.repeats,
                  "timed pairs of a scored shape (default: as time allows)")
      ->check(CLI::Range(1, repeats_max));
  command
      .add_option("--queue-replays", arguments.queue_replays,
                  "replays that a GPU is handed before the judge waits for them; 1: it waits after "
                  "each. Times of runs with different values are not comparable")
      ->check(CLI::Range(1, queue_replays_max))
      ->capture_default_str();
  command.add_option("--json", arguments.json, "write the result as JSON");
  command.add_option("--html", arguments.html, "write the result as a page with charts");
  command.add_option("--markdown", arguments.markdown, "write the table of the shapes as markdown");
  command.add_option("--threads", arguments.threads, "threads on the CPU (default: all)")
      ->check(CLI::Range(1, threads_max));
}

}  // namespace

void add_judge(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "judge",
      "Check and time a contender against baselines, on the 39 shapes or those of a shape file");
  const auto arguments = std::make_shared<JudgeArguments>();
  add_options(*command, *arguments);
  command->callback([arguments, &exit_code] { exit_code = judge(*arguments); });
}

}  // namespace slimgemm::cli
