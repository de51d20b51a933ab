// SPDX-License-Identifier: Apache-2.0
#include "commands.hpp"
#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/progress.hpp"
#include "judge/report.hpp"
#include "judge/run.hpp"
#include "judge/safetensors.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <dlfcn.h>

namespace slimgemm::cli {
namespace {

using namespace slimgemm::judge;

constexpr int repeats_max = 100'000;
constexpr int threads_max = 1024;
// Pairs of a scored shape on a GPU, where a replay takes a millisecond with all around it.
constexpr int cuda_pairs_max = 101;
constexpr double cuda_case_budget_s = 10;
constexpr int cuda_warmup_replays = 3;
constexpr int cuda_ceiling_repeats = 31;
constexpr int cuda_empty_repeats = 101;

struct JudgeArguments {
  std::string device = "auto";
  std::string contender = "slimgemm";
  std::string baseline = "auto";
  std::vector<std::string> loads;
  std::vector<std::string> layers;
  int repeats = 0;
  std::uint64_t seed = 1;
  std::string weights;
  std::string json;
  std::string html;
  int threads = 0;
};

// Bad usage that only the command can see: exit code 2, as for the parser's own errors.
[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

template <typename Entries>
std::vector<std::string> names_of(const Entries& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& entry : entries) names.emplace_back(entry.name);
  return names;
}

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void require_known(const char* option, const std::vector<std::string>& given,
                   const std::vector<std::string>& known) {
  for (const std::string& name : given) {
    if (contains(known, name)) continue;
    refuse(fmt::format("{} {}: there is no such name; choose from {}", option, name,
                       fmt::join(known, ", ")));
  }
}

void require_folder(const char* option, const std::string& path) {
  if (path.empty()) return;
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0) {
    refuse(fmt::format("{} {}: its folder does not exist or cannot be written", option, path));
  }
}

// All 39 cases, or those scored shapes that --loads and --layers leave.
std::vector<Case> choose_cases(const JudgeArguments& arguments) {
  const auto load_names = names_of(loads());
  const auto layer_names = names_of(layers());
  require_known("--loads", arguments.loads, load_names);
  require_known("--layers", arguments.layers, layer_names);
  std::vector<Case> cases = all_cases();
  if (arguments.loads.empty() && arguments.layers.empty()) return cases;
  const auto left_out = [&](const Case& c) {
    if (!arguments.layers.empty() && !contains(arguments.layers, info(c.layer).name)) return true;
    if (arguments.loads.empty()) return false;
    return std::none_of(loads().begin(), loads().end(), [&](const Load& load) {
      return c.scored && load.m == c.m && contains(arguments.loads, load.name);
    });
  };
  cases.erase(std::remove_if(cases.begin(), cases.end(), left_out), cases.end());
  return cases;
}

std::unique_ptr<Executor> choose_executor(const JudgeArguments& arguments) {
  const bool cuda =
      arguments.device == "cuda" || (arguments.device == "auto" && cuda_device_count() > 0);
  if (!cuda) return make_cpu_executor(arguments.threads);
  if (arguments.threads != 0) refuse("--threads is for --device cpu");
  return make_cuda_executor(0);
}

std::unique_ptr<Contender> choose_contender(const JudgeArguments& arguments, int cuda_device) {
  if (arguments.contender == "slimgemm") {
    return make_slimgemm_contender(cuda_device, arguments.threads);
  }
  return load_contender(arguments.contender, cuda_device);
}

// oneDNN's threads are OpenMP's; where its runtime is loaded, it is told the number.
void limit_openmp_threads(int threads) {
  using SetThreads = void (*)(int);
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (threads > 0 && set_threads != nullptr) set_threads(threads);
}

std::unique_ptr<Contender> make_baseline(const std::string& name, int cuda_device) {
  const bool cuda = cuda_device >= 0;
  if (name == "none") return nullptr;
  if (name == "onednn") {
    if (cuda) refuse("--baseline onednn is for --device cpu; on a GPU: sglang or best-blas");
    return make_onednn_baseline();
  }
  if (!cuda) {
    refuse(
        fmt::format("--baseline {} needs a GPU (--device cuda); on the CPU: onednn or none", name));
  }
  return name == "sglang" ? make_sglang_baseline(cuda_device)
                          : make_best_blas_baseline(cuda_device);
}

std::unique_ptr<Contender> choose_baseline(const JudgeArguments& arguments, int cuda_device) {
  limit_openmp_threads(arguments.threads);
  if (arguments.baseline != "auto") return make_baseline(arguments.baseline, cuda_device);
  try {
    return make_baseline(cuda_device >= 0 ? "sglang" : "onednn", cuda_device);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    fmt::print(stderr, "no baseline: {}\n", error.what());
    return nullptr;
  }
}

RunOptions run_options(const JudgeArguments& arguments, bool is_cuda) {
  RunOptions options;
  options.cases = choose_cases(arguments);
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.repeats = arguments.repeats;
  if (is_cuda) {
    options.pairs_max = cuda_pairs_max;
    options.case_budget_s = cuda_case_budget_s;
    options.warmup_replays = cuda_warmup_replays;
    options.ceiling_repeats = cuda_ceiling_repeats;
    options.empty_repeats = cuda_empty_repeats;
  }
  return options;
}

// The command as typed, without the program's folder.
std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) return "slimgemm judge";
  words[0] = std::filesystem::path(words[0]).filename().string();
  return fmt::format("{}", fmt::join(words, " "));
}

int judge(const JudgeArguments& arguments) {
  if ((!arguments.json.empty() || !arguments.html.empty()) && !reports_available()) {
    refuse("--json and --html need a build with nlohmann-json (nlohmann-json3-dev)");
  }
  choose_cases(arguments);  // what cannot work is told before the work
  require_folder("--json", arguments.json);
  require_folder("--html", arguments.html);
  ReportFacts facts;
  facts.command_line = command_line();
  facts.version = build_version();
  facts.commit = build_commit();
  facts.date = utc_now();
  facts.seed = arguments.seed;

  const auto executor = choose_executor(arguments);
  facts.is_cuda = executor->is_cuda();
  const auto contender = choose_contender(arguments, executor->cuda_device());
  const auto baseline = choose_baseline(arguments, executor->cuda_device());

  Progress progress(stderr, isatty(STDERR_FILENO) != 0);
  progress.update("weights", 0);
  const Weights weights = arguments.weights.empty()
                              ? generate_weights(layers(), arguments.seed, arguments.threads)
                              : load_safetensors(arguments.weights, layers());
  RunOptions options = run_options(arguments, facts.is_cuda);
  options.progress = [&](const std::string& stage, double done) { progress.update(stage, done); };
  const RunResult result = run_judge(*executor, *contender, baseline.get(), weights, options);
  progress.clear();

  facts.device = executor->describe();
  if (facts.is_cuda) {
    for (const auto& [key, value] : host_facts()) facts.device.emplace_back("host_" + key, value);
  }
  fmt::print("{}", text_report(result, facts));
  if (!arguments.json.empty()) write_file(arguments.json, json_report(result, facts));
  if (!arguments.html.empty()) write_file(arguments.html, html_report(result, facts));
  return verdict(result) == Verdict::passed ? exit_ok : exit_failed;
}

void add_options(CLI::App& command, JudgeArguments& arguments) {
  command.add_option("--device", arguments.device, "auto: the GPU if there is one, else the CPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  command
      .add_option("--contender", arguments.contender,
                  "slimgemm, or a shared library (slimgemm/contender.h)")
      ->capture_default_str();
  command
      .add_option("--baseline", arguments.baseline,
                  "auto: sglang on a GPU, onednn on the CPU where this build has it")
      ->check(CLI::IsMember({"auto", "sglang", "best-blas", "onednn", "none"}))
      ->capture_default_str();
  command.add_option("--loads", arguments.loads, "only these loads, e.g. \"decode 1,verify 16\"")
      ->delimiter(',');
  command.add_option("--layers", arguments.layers, "only these layers, e.g. pooler,router")
      ->delimiter(',');
  command
      .add_option("--repeats", arguments.repeats,
                  "timed pairs of a scored shape (default: as time allows)")
      ->check(CLI::Range(1, repeats_max));
  command.add_option("--seed", arguments.seed, "of weights and inputs")->capture_default_str();
  command.add_option("--weights", arguments.weights,
                     "take the five matrices from a safetensors file: qkv_gate, o, pooler, "
                     "unpooler, router");
  command.add_option("--json", arguments.json, "write the result as JSON");
  command.add_option("--html", arguments.html, "write the result as a page with charts");
  command.add_option("--threads", arguments.threads, "threads on the CPU (default: all)")
      ->check(CLI::Range(1, threads_max));
}

}  // namespace

void add_judge(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "judge", "Check and time a contender on the 39 shapes, against a baseline");
  const auto arguments = std::make_shared<JudgeArguments>();
  add_options(*command, *arguments);
  command->callback([arguments, &exit_code] { exit_code = judge(*arguments); });
}

}  // namespace slimgemm::cli
