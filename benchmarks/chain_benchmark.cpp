// SPDX-License-Identifier: Apache-2.0
// How long layers take that follow each other in one CUDA graph, without and with programmatic
// dependent launches, beside the layers timed one by one and a chain of cuBLAS. CONTRIBUTING.md
// describes it.
#include "chain.hpp"
#include "cmd_common.hpp"

#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/progress.hpp"
#include "judge/report.hpp"
#include "tune/layers.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace slimgemm::bench {
namespace {

constexpr std::int64_t tokens_max = 4096;
constexpr int passes_max = 64;
constexpr int replays_max = 100'000;

enum ExitCode : int { exit_ok = 0, exit_failed = 1, exit_usage = 2 };

struct Arguments {
  std::string device = "cuda";
  int cuda_device = 0;
  std::vector<std::string> layers;
  std::vector<std::int64_t> tokens{1, 8, 16, 32};
  int passes = ChainOptions{}.passes;
  int replays = ChainOptions{}.replays;
  std::string baseline;
  std::string json;
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

void add_options(CLI::App& app, Arguments& a) {
  app.add_option("--m", a.tokens, "Token counts, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("--layers", a.layers,
                 "Layers of the judge in the order of a pass, separated by commas (default: all)")
      ->delimiter(',');
  app.add_option("--passes", a.passes, "Passes through the layers; each has weights of its own")
      ->check(CLI::Range(1, passes_max))
      ->capture_default_str();
  app.add_option("--replays", a.replays, "Timed replays of everything, in turn")
      ->check(CLI::Range(1, replays_max))
      ->capture_default_str();
  app.add_option("--baseline", a.baseline, "sglang (cuBLAS as SGLang calls it) or none")
      ->check(CLI::IsMember({"sglang", "none"}));
  app.add_option("--device", a.device, "cuda, or cpu to try the benchmark out")
      ->check(CLI::IsMember({"cuda", "cpu"}))
      ->capture_default_str();
  app.add_option("--cuda-device", a.cuda_device, "Ordinal of the GPU")->capture_default_str();
  app.add_option("--json", a.json, "Write all measurements as JSON");
}

ChainOptions choose(const Arguments& arguments) {
  ChainOptions options;
  options.tokens = arguments.tokens;
  options.passes = arguments.passes;
  options.replays = arguments.replays;
  for (const std::int64_t m : options.tokens) {
    if (m < 1 || m > tokens_max) {
      refuse(fmt::format("--m has {}: it must be 1 to {}", m, tokens_max));
    }
  }
  if (arguments.device == "cpu" && arguments.baseline == "sglang") {
    refuse("--baseline sglang needs a GPU (--device cuda); on the CPU: none");
  }
  if (arguments.layers.empty()) options.layers = judge::layers();
  for (const std::string& name : arguments.layers) {
    options.layers.push_back(tune::find_layer("--layers", name));
  }
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    options.layers[i].layer = static_cast<judge::Layer>(i);
  }
  return options;
}

/// Without --baseline a GPU's chain is compared with cuBLAS where there is one.
MakeBaseline choose_baseline(const Arguments& arguments) {
  const bool cuda = arguments.device == "cuda";
  if (!cuda || arguments.baseline == "none") return {};
  try {
    judge::make_sglang_baseline(arguments.cuda_device);
  } catch (const Error& error) {
    if (!arguments.baseline.empty() || error.code() != ErrorCode::unsupported) throw;
    fmt::print(stderr, "no baseline: {}\n", error.what());
    return {};
  }
  return [device = arguments.cuda_device](const judge::Problem& problem) {
    return judge::make_sglang_baseline(device, problem);
  };
}

int measure(const Arguments& arguments) {
  // What cannot work is told before the work.
  ChainOptions options = choose(arguments);
  if (!arguments.json.empty() && !judge::reports_available()) {
    refuse("--json needs a build with nlohmann-json (nlohmann-json3-dev)");
  }
  cli::require_folder("--json", arguments.json);
  const auto executor = arguments.device == "cuda"
                            ? judge::make_cuda_executor(arguments.cuda_device)
                            : judge::make_cpu_executor();
  const MakeBaseline make_baseline = choose_baseline(arguments);
  ChainReport report;
  {
    judge::Progress progress(stderr, isatty(STDERR_FILENO) != 0);
    options.progress = [&](const std::string& stage, double done) { progress.update(stage, done); };
    report = run_chains(*executor, options, make_baseline);
  }
  fmt::print("{}", chain_text(report));
  if (!arguments.json.empty()) {
    ChainFacts facts{cli::command_line(), judge::utc_now(), executor->describe()};
    for (const auto& [key, value] : judge::host_facts()) {
      facts.device.emplace_back("host_" + key, value);
    }
    judge::write_file(arguments.json, chain_json(report, facts));
  }
  return report.passed() ? exit_ok : exit_failed;
}

int run(int argc, char** argv) {
  CLI::App app{"Times a chain of layers in one CUDA graph, without and with programmatic launches"};
  Arguments arguments;
  add_options(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  return measure(arguments);
}

}  // namespace
}  // namespace slimgemm::bench

int main(int argc, char** argv) {
  try {
    return slimgemm::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "chain_benchmark: %s\n", error.what());
    return slimgemm::bench::exit_usage;
  }
}
