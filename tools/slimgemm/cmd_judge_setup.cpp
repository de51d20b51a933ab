// SPDX-License-Identifier: Apache-2.0
#include "judge/shape_file.hpp"
#include "judge_setup.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include <dlfcn.h>

namespace slimgemm::cli {
namespace {

using namespace slimgemm::judge;

// Pairs of a scored shape on a GPU, where a replay takes a millisecond with all around it.
constexpr int cuda_pairs_max = 101;
constexpr double cuda_case_budget_s = 10;
constexpr int cuda_warmup_replays = 3;
constexpr int cuda_ceiling_repeats = 31;
constexpr int cuda_empty_repeats = 101;

// Bad usage that only the command can see: exit code 2, as for the parser's own errors.
[[noreturn]] void refuse_options(const std::string& message) {
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
    refuse_options(fmt::format("{} {}: there is no such name; choose from {}", option, name,
                               fmt::join(known, ", ")));
  }
}

// What makes no sense together with --shapes.
void require_no_conflict(const JudgeArguments& arguments) {
  if (!arguments.loads.empty()) {
    refuse_options(
        "--loads is for the fixed problem; a shape file (--shapes) gives its own token counts");
  }
  if (!arguments.weights.empty()) {
    refuse_options(
        "--weights is for the fixed problem's five matrices; with --shapes they are generated");
  }
  if (arguments.contender != "slimgemm") {
    refuse_options(
        fmt::format("--contender {}: with --shapes only slimgemm can be judged. A shared library "
                    "numbers the five layers of the fixed problem (slimgemm/contender.h)",
                    arguments.contender));
  }
}

// A layer of the fixed problem stays in its table, where its number is its place.
void keep_layers(Problem& problem, const std::vector<std::string>& names) {
  if (names.empty()) return;
  const auto left_out = [&](const Case& c) {
    return !contains(names, problem.layers.at(static_cast<std::size_t>(c.layer)).name);
  };
  std::erase_if(problem.cases, left_out);
}

void keep_loads(Problem& problem, const std::vector<std::string>& names) {
  if (names.empty()) return;
  std::erase_if(problem.cases, [&](const Case& c) {
    return std::none_of(loads().begin(), loads().end(), [&](const Load& load) {
      return c.scored && load.m == c.m && contains(names, load.name);
    });
  });
}

// oneDNN's threads are OpenMP's; where its runtime is loaded, it is told the number.
void limit_openmp_threads(int threads) {
  using SetThreads = void (*)(int);
  const auto set_threads = reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
  if (threads > 0 && set_threads != nullptr) set_threads(threads);
}

std::unique_ptr<Contender> make_baseline(const std::string& name, int cuda_device,
                                         const Problem& problem) {
  const bool cuda = cuda_device >= 0;
  if (name == "onednn") {
    if (cuda)
      refuse_options("--baseline onednn is for --device cpu; on a GPU: sglang or best-blas");
    return make_onednn_baseline(problem);
  }
  if (!cuda) {
    refuse_options(
        fmt::format("--baseline {} needs a GPU (--device cuda); on the CPU: onednn or none", name));
  }
  return name == "sglang" ? make_sglang_baseline(cuda_device, problem)
                          : make_best_blas_baseline(cuda_device, problem);
}

}  // namespace

Problem choose_problem(const JudgeArguments& arguments) {
  if (!arguments.shapes.empty()) require_no_conflict(arguments);
  Problem problem = arguments.shapes.empty() ? fixed_problem() : read_shape_file(arguments.shapes);
  require_known("--loads", arguments.loads, names_of(loads()));
  require_known("--layers", arguments.layers, names_of(problem.layers));
  keep_layers(problem, arguments.layers);
  keep_loads(problem, arguments.loads);
  return problem;
}

std::string problem_text(const Problem& problem) {
  std::size_t width = 0;
  for (const LayerInfo& layer : problem.layers) width = std::max(width, layer.name.size());
  std::string text = fmt::format("{:<{}}  {:>6}  {:>6}  {:<5}  {:>7}  {:<20}  {}\n", "layer", width,
                                 "n", "k", "dtype", "MB", "m", "role");
  for (const LayerInfo& layer : problem.layers) {
    std::vector<std::int64_t> tokens;
    for (const Case& c : problem.cases) {
      if (c.layer == layer.layer) tokens.push_back(c.m);
    }
    if (tokens.empty()) continue;
    const auto bytes = static_cast<double>(layer.n * layer.k * size_bytes(layer.dtype));
    const std::string line =
        fmt::format("{:<{}}  {:>6}  {:>6}  {:<5}  {:>7.1f}  {:<20}  {}", layer.name, width, layer.n,
                    layer.k, slimgemm::name(layer.dtype), bytes / 1e6,
                    fmt::format("{}", fmt::join(tokens, " ")), layer.role);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return text + fmt::format("{} shapes\n", problem.cases.size());
}

std::unique_ptr<Executor> choose_executor(const JudgeArguments& arguments) {
  const bool cuda =
      arguments.device == "cuda" || (arguments.device == "auto" && cuda_device_count() > 0);
  if (!cuda && arguments.queue_replays != 1) {
    refuse_options(
        fmt::format("--queue-replays {} needs a GPU (--device cuda): on the CPU a replay is a "
                    "call, and there is nothing to queue",
                    arguments.queue_replays));
  }
  if (!cuda) return make_cpu_executor(arguments.threads);
  if (arguments.threads != 0) refuse_options("--threads is for --device cpu");
  return make_cuda_executor(0);
}

std::vector<std::string> choose_baselines(const JudgeArguments& arguments, int cuda_device) {
  limit_openmp_threads(arguments.threads);
  const std::vector<std::string>& given = arguments.baselines;
  for (const std::string& name : given) {
    if (std::count(given.begin(), given.end(), name) > 1) {
      refuse_options(fmt::format("--baseline {} is given twice", name));
    }
    if (given.size() > 1 && (name == "auto" || name == "none")) {
      refuse_options(
          fmt::format("--baseline {} stands alone; it cannot be combined with others", name));
    }
  }
  if (given.front() == "none") return {};
  if (given.front() != "auto") {
    // Made once to see whether it can be.
    for (const std::string& name : given) make_baseline(name, cuda_device, fixed_problem());
    return given;
  }
  const std::string name = cuda_device >= 0 ? "sglang" : "onednn";
  try {
    make_baseline(name, cuda_device, fixed_problem());
    return {name};
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
    fmt::print(stderr, "no baseline: {}\n", error.what());
    return {};
  }
}

Contestants make_contestants(const JudgeArguments& arguments,
                             const std::vector<std::string>& baselines, int cuda_device,
                             const Problem& problem) {
  if (arguments.batch_invariant && arguments.contender != "slimgemm") {
    refuse_options("--batch-invariant is for --contender slimgemm, which is " +
                   arguments.contender);
  }
  Contestants contestants;
  contestants.contender = arguments.contender == "slimgemm"
                              ? make_slimgemm_contender(cuda_device, arguments.threads,
                                                        problem.layers, arguments.batch_invariant)
                              : load_contender(arguments.contender, cuda_device);
  for (const std::string& name : baselines) {
    contestants.baselines.push_back(make_baseline(name, cuda_device, problem));
  }
  return contestants;
}

RunOptions run_options(const JudgeArguments& arguments, Problem problem, bool is_cuda) {
  RunOptions options;
  options.problem = std::move(problem);
  options.seed = arguments.seed;
  options.threads = arguments.threads;
  options.repeats = arguments.repeats;
  options.replays_queued = arguments.queue_replays;
  if (is_cuda) {
    options.pairs_max = cuda_pairs_max;
    options.case_budget_s = cuda_case_budget_s;
    options.warmup_replays = cuda_warmup_replays;
    options.ceiling_repeats = cuda_ceiling_repeats;
    options.empty_repeats = cuda_empty_repeats;
  }
  return options;
}

}  // namespace slimgemm::cli
