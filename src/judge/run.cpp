// SPDX-License-Identifier: Apache-2.0
#include "judge/run.hpp"

#include "judge/case_run.hpp"
#include "judge/random.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <utility>

namespace slimgemm::judge {
namespace {

using Clock = std::chrono::steady_clock;

double elapsed_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Work of a case for the progress line, in FLOPs: a fixed part for the replays, and the products.
double case_work(const Shape& shape) { return 5e9 + shape_flops(shape); }

void report_progress(const RunOptions& options, const std::string& stage, double done) {
  if (options.progress) options.progress(stage, done);
}

void require_weights(const Weights& weights, const LayerTable& table) {
  if (weights.matrices.size() != table.size()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("weights: {} matrices for {} layers",
                                                         weights.matrices.size(), table.size()));
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto expected =
        static_cast<std::size_t>(table[i].n * table[i].k * size_bytes(table[i].dtype));
    if (weights.matrices[i].size_bytes() != expected) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("weights of {}: {} bytes, expected {} ({} x {} {})", table[i].name,
                              weights.matrices[i].size_bytes(), expected, table[i].n, table[i].k,
                              name(table[i].dtype)));
    }
  }
}

// The matrices as a contender sees them. On a GPU, `session` holds their copies there.
WeightSet weight_set(const Weights& weights, const Session& session) {
  WeightSet set;
  for (std::size_t i = 0; i < weights.matrices.size(); ++i) {
    const LayerInfo& layer = session.options.problem.layers[i];
    set.push_back({layer.n, layer.k, layer.dtype, weights.matrices[i].data(),
                   session.executor.is_cuda() ? session.weights[i]->data() : nullptr});
  }
  return set;
}

// Prepares one side and notes how that went in `record`. Returns whether it can be run.
bool prepare(Contender& who, const WeightSet& weights, const RunOptions& options,
             Participant& record) {
  report_progress(options, "prepare " + record.name, 0);
  Failure failure{};
  if (!options.problem.shape_file.empty()) failure.layer = options.problem.layers.front().name;
  bool can_run = true;
  const Clock::time_point begin = Clock::now();
  try {
    who.prepare(weights);
  } catch (const std::exception& error) {
    can_run = false;
    failure.kind = FailureKind::prepare_failed;
    failure.detail = error.what();
    record.failures.push_back(failure);
  }
  const double elapsed_s = elapsed_since(begin);
  record.prepare_s = record.prepare_s.value_or(0) + elapsed_s;
  if (elapsed_s > options.prepare_limit_s) {
    failure.kind = FailureKind::prepare_time;
    failure.measured = elapsed_s;
    failure.limit = options.prepare_limit_s;
    record.failures.push_back(failure);
  }
  return can_run;
}

// After a failure the device may be unusable: that ends the run, and is no fault of the judge.
void end_run(RunResult& result, const LayerInfo& layer, std::int64_t m,
             const std::exception& error) {
  Failure failure{};
  failure.kind = FailureKind::run_ended;
  failure.layer = layer.name;
  failure.m = m;
  failure.detail = error.what();
  result.run_failures.push_back(failure);
}

bool any_failures(const RunResult& result) {
  return !result.contender_failures().empty() || !result.baseline_failures().empty();
}

double total_work(const Problem& problem) {
  double total = 0;
  for (const Case& c : problem.cases) total += case_work(resolve(c, problem.layers));
  return total;
}

void run_cases(Session& session, RunResult& result) {
  const Problem& problem = session.options.problem;
  const double total = total_work(problem);
  double done = 0;
  for (const Case& c : problem.cases) {
    const Shape shape = resolve(c, problem.layers);
    report_progress(session.options, fmt::format("{} m={}", shape.name, shape.m), done / total);
    try {
      result.cases.push_back(run_case(session, c));
    } catch (const std::exception& error) {
      if (!any_failures(result)) throw;
      end_run(result, problem.layers.at(static_cast<std::size_t>(c.layer)), c.m, error);
      return;
    }
    done += case_work(shape);
  }
}

// Judges the problem of `options` and appends what comes of it to `result`.
void judge_problem(Executor& executor, Contender& contender, std::vector<Contender*> baselines,
                   const Weights& weights, const RunOptions& options, RunResult& result) {
  require_weights(weights, options.problem.layers);
  Session session{executor, contender, std::move(baselines), options, {}, 0, {}};
  for (const Weights::Matrix& matrix : weights.matrices) {
    session.weights.push_back(executor.allocate(matrix.size_bytes()));
    executor.upload(*session.weights.back(), matrix.data(), matrix.size_bytes());
  }
  const WeightSet set = weight_set(weights, session);
  result.contender.name = contender.name();
  result.baselines.resize(session.baselines.size());
  for (std::size_t i = 0; i < session.baselines.size(); ++i) {
    result.baselines[i].name = session.baselines[i]->name();
  }
  const bool can_run = prepare(contender, set, options, result.contender);
  for (std::size_t i = 0; i < session.baselines.size(); ++i) {
    if (!prepare(*session.baselines[i], set, options, result.baselines[i])) {
      session.baselines[i] = nullptr;
    }
  }
  if (!can_run) return;
  if (result.empty_us == 0) {
    result.empty_us = executor.empty_replay_us({options.empty_repeats, options.replays_queued});
  }
  session.empty_us = result.empty_us;
  run_cases(session, result);
}

// The part of `options` that is one layer, with a seed of its own: layers of different sizes have
// different weights.
RunOptions options_of(const LayerInfo& layer, const RunOptions& options) {
  RunOptions part = options;
  part.problem.layers = {layer};
  part.problem.layers.front().layer = Layer{0};
  part.problem.cases.clear();
  for (const Case& c : options.problem.cases) {
    if (c.layer == layer.layer) part.problem.cases.push_back({Layer{0}, c.m, c.scored});
  }
  part.seed = RandomStream{options.seed, static_cast<std::uint64_t>(layer.n),
                           static_cast<std::uint64_t>(layer.k)}
                  .bits();
  return part;
}

void judge_layer(Executor& executor, const MakeContestants& make, const RunOptions& part,
                 RunResult& result) {
  const LayerInfo& layer = part.problem.layers.front();
  report_progress(part, "weights of " + layer.name, 0);
  const Weights weights = generate_weights(part.problem.layers, part.seed, part.threads);
  const Contestants contestants = make(part.problem);
  std::vector<Contender*> baselines;
  for (const auto& baseline : contestants.baselines) baselines.push_back(baseline.get());
  judge_problem(executor, *contestants.contender, std::move(baselines), weights, part, result);
}

const CaseResult* find_scored(const std::vector<CaseResult>& cases, Layer layer, std::int64_t m) {
  for (const CaseResult& c : cases) {
    if (c.shape.scored && c.shape.layer == layer && c.shape.m == m) return &c;
  }
  return nullptr;
}

std::optional<LoadResult> sum_load(const RunResult& result, const Load& load) {
  LoadResult sum;
  sum.name = load.name;
  sum.m = load.m;
  std::vector<const CaseResult*> cases;
  for (const LayerInfo& layer : layers()) {
    const CaseResult* c = find_scored(result.cases, layer.layer, load.m);
    if (c == nullptr || !c->contender.time) return std::nullopt;
    sum.ours_us += c->contender.time->median;
    sum.floor_us += c->floor_us;
    sum.ceiling_us += c->ceiling_us.value_or(0);
    cases.push_back(c);
  }
  for (std::size_t i = 0; i < result.baselines.size(); ++i) {
    auto& baseline = sum.baselines.emplace_back();
    double us = 0;
    const bool complete = std::all_of(cases.begin(), cases.end(), [&](const CaseResult* c) {
      const BaselineResult* against = c->against(i);
      if (against == nullptr || !against->side.time) return false;
      us += against->side.time->median;
      return true;
    });
    if (complete) baseline = LoadBaseline{us, us / sum.ours_us};
  }
  return sum;
}

/// What every result says of its run.
RunResult empty_result(const RunOptions& options) {
  RunResult result;
  result.shape_file = options.problem.shape_file;
  result.layers = options.problem.layers;
  result.replays_queued = options.replays_queued;
  return result;
}

}  // namespace

const BaselineResult* CaseResult::against(std::size_t index) const {
  return index < baselines.size() && baselines[index] ? &*baselines[index] : nullptr;
}

const LoadBaseline* LoadResult::against(std::size_t index) const {
  return index < baselines.size() && baselines[index] ? &*baselines[index] : nullptr;
}

std::vector<Failure> RunResult::contender_failures() const {
  std::vector<Failure> all = contender.failures;
  for (const CaseResult& c : cases) {
    all.insert(all.end(), c.contender.failures.begin(), c.contender.failures.end());
  }
  all.insert(all.end(), run_failures.begin(), run_failures.end());
  return all;
}

std::vector<Failure> RunResult::baseline_failures(std::size_t index) const {
  std::vector<Failure> all = baselines.at(index).failures;
  for (const CaseResult& c : cases) {
    if (const BaselineResult* against = c.against(index)) {
      all.insert(all.end(), against->side.failures.begin(), against->side.failures.end());
    }
  }
  return all;
}

std::vector<Failure> RunResult::baseline_failures() const {
  std::vector<Failure> all;
  for (std::size_t i = 0; i < baselines.size(); ++i) {
    const std::vector<Failure> some = baseline_failures(i);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

void summarise(RunResult& result) {
  result.loads.clear();
  result.score.reset();
  if (!result.shape_file.empty()) return;
  std::vector<double> speedups;
  for (const Load& load : loads()) {
    if (auto sum = sum_load(result, load)) {
      if (const LoadBaseline* first = sum->against(0)) speedups.push_back(first->speedup);
      result.loads.push_back(std::move(*sum));
    }
  }
  if (!any_failures(result) && speedups.size() == loads().size()) {
    result.score = geometric_mean(speedups);
  }
}

RunResult run_judge(Executor& executor, Contender& contender,
                    const std::vector<Contender*>& baselines, const Weights& weights,
                    const RunOptions& options) {
  const Clock::time_point begin = Clock::now();
  RunResult result = empty_result(options);
  result.weights = weights.origin;
  judge_problem(executor, contender, baselines, weights, options, result);
  report_progress(options, "done", 1);
  result.elapsed_s = elapsed_since(begin);
  summarise(result);
  return result;
}

RunResult run_layer_by_layer(Executor& executor, const MakeContestants& make,
                             const RunOptions& options) {
  const Clock::time_point begin = Clock::now();
  RunResult result = empty_result(options);
  result.weights = generated_origin(options.seed) + ", layer by layer";
  const double total = total_work(options.problem);
  double done = 0;
  for (const LayerInfo& layer : options.problem.layers) {
    RunOptions part = options_of(layer, options);
    if (part.problem.cases.empty()) continue;
    const double work = total_work(part.problem);
    part.progress = [&](const std::string& stage, double share) {
      report_progress(options, stage, (done + share * work) / total);
    };
    const std::size_t first_case = result.cases.size();
    try {
      judge_layer(executor, make, part, result);
    } catch (const std::exception& error) {
      if (!any_failures(result)) throw;
      end_run(result, layer, 0, error);
    }
    for (std::size_t i = first_case; i < result.cases.size(); ++i) {
      result.cases[i].shape.layer = layer.layer;
    }
    if (!result.run_failures.empty()) break;
    done += work;
  }
  report_progress(options, "done", 1);
  result.elapsed_s = elapsed_since(begin);
  summarise(result);
  return result;
}

}  // namespace slimgemm::judge
