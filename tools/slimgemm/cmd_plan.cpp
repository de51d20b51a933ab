// SPDX-License-Identifier: Apache-2.0
// slimgemm plan: which GPU kernel serves a layer, and why. Needs no GPU.
#include "commands.hpp"

#include "judge/cases.hpp"
#include "plan/kernel_plan.hpp"
#include "plan/tuning_table.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace slimgemm::cli {
namespace {

struct PlanOptions {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string layer;
  std::vector<std::int64_t> m{1, 8, 16, 32, 64, 128, 256};
  std::string encoding = "split12";
  int sm_count = plan::GpuFacts{}.sm_count;
  bool all = false;
  bool model = false;
  bool batch_invariant = false;
  std::string table;
};

Encoding parse_encoding(const std::string& text) {
  for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    if (text == name(e)) return e;
  }
  throw Error(ErrorCode::invalid_argument,
              "--encoding is " + text + ": it must be split12, raw16 or raw32");
}

/// The table to plan with: none, one from a file, or the one that this build has.
plan::TuningTable choose_table(const PlanOptions& options) {
  if (options.model) return {};
  if (options.table.empty()) {
    const std::vector<std::string>& errors = plan::shipped_tuning_errors();
    if (!errors.empty()) {
      fmt::print(stderr, "the tuned plans of this build are not used: {}\n", errors.front());
    }
    return plan::shipped_tuning_table();
  }
  std::ifstream file(options.table, std::ios::binary);
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) {
    throw Error(ErrorCode::io_error, fmt::format("cannot read {}", options.table));
  }
  plan::TuningText text = plan::read_tuning_table(content.str(), options.table);
  std::vector<std::string> errors = std::move(text.errors);
  errors.insert(errors.end(), text.unknown_instances.begin(), text.unknown_instances.end());
  if (!errors.empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{}", fmt::join(errors, "\n")));
  }
  return plan::TuningTable(std::move(text.entries));
}

void print_plan(const plan::Problem& problem, const plan::GpuFacts& gpu,
                const plan::KernelPlan& chosen, bool all) {
  fmt::print("m={:<5} {}: {} x {} CTAs of {} threads, {} B shared memory; {}\n", problem.m,
             plan::instance_name(chosen.instance), chosen.grid_x, chosen.grid_y, chosen.threads,
             chosen.smem_bytes, chosen.reason);
  if (!all) return;
  std::vector<std::pair<double, plan::Instance>> candidates;
  for (const plan::Instance& instance : plan::instances_of(problem.encoding)) {
    candidates.emplace_back(plan::estimate_us(instance, problem, gpu), instance);
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [us, instance] : candidates) {
    const std::string time = std::isfinite(us) ? fmt::format("{:8.2f} us", us) : "can't serve";
    fmt::print("        {:>11}  {}\n", time, plan::instance_name(instance));
  }
}

int run_plan(PlanOptions options) {
  Encoding encoding = parse_encoding(options.encoding);
  if (!options.layer.empty()) {
    const judge::LayerInfo* found = nullptr;
    std::vector<std::string_view> names;
    for (const judge::LayerInfo& info : judge::layers()) {
      names.push_back(info.name);
      if (info.name == options.layer) found = &info;
    }
    if (found == nullptr) {
      throw Error(ErrorCode::invalid_argument, fmt::format("--layer is {}: it must be one of {}",
                                                           options.layer, fmt::join(names, ", ")));
    }
    options.n = found->n;
    options.k = found->k;
    if (found->dtype == DType::f32) encoding = Encoding::raw32;
  }
  for (const auto& [label, value] : {std::pair{"--n", options.n}, std::pair{"--k", options.k}}) {
    if (value < 1 || value > max_dimension) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is {}: it must be 1 to {} (or give --layer)", label, value,
                              max_dimension));
    }
  }
  plan::GpuFacts gpu;
  gpu.sm_count = options.sm_count;
  const plan::TuningTable table = choose_table(options);
  fmt::print("n={} k={} {} on {} SMs\n", options.n, options.k, name(encoding), gpu.sm_count);
  for (const std::int64_t m : options.m) {
    if (m < 1 || m > max_dimension) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--m has {}: it must be 1 to {}", m, max_dimension));
    }
    const plan::Problem problem{.rows = options.n, .k = options.k, .m = m, .encoding = encoding};
    const plan::KernelPlan chosen =
        options.batch_invariant
            ? plan::plan_in_k_order(plan::choose_k_order(problem, gpu), problem, gpu)
            : plan::plan_kernel(problem, gpu, table);
    print_plan(problem, gpu, chosen, options.all);
  }
  return exit_ok;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("plan", "Say which GPU kernel serves a layer, and why");
  auto options = std::make_shared<PlanOptions>();
  command->add_option("--layer", options->layer,
                      "One of the judge's layers, instead of --n and --k");
  command->add_option("--n", options->n, "Output features");
  command->add_option("--k", options->k, "Input features");
  command->add_option("--m", options->m, "Token counts, separated by commas")->delimiter(',');
  command->add_option("--encoding", options->encoding, "split12, raw16 or raw32")
      ->capture_default_str();
  command->add_option("--sms", options->sm_count, "SMs of the GPU")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_flag("--all", options->all, "List every instance with its estimate");
  auto* model = command->add_flag(
      "--model", options->model, "The cost model's choice, whatever the table of tuned plans says");
  auto* table = command->add_option("--table", options->table,
                                    "Tuned plans from a file, not those of this build");
  table->excludes(model);
  command
      ->add_flag("--batch-invariant", options->batch_invariant,
                 "With the option under which a row's bits do not depend on m")
      ->excludes(model)
      ->excludes(table);
  command->callback([options, &exit_code] { exit_code = run_plan(*options); });
}

}  // namespace slimgemm::cli
