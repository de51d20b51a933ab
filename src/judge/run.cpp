// SPDX-License-Identifier: Apache-2.0
#include "judge/run.hpp"

#include "judge/case_run.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

namespace slimgemm::judge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Work of a case for the progress line, in FLOPs: a fixed part for the replays, and the products.
double case_work(const Shape& shape) { return 5e9 + shape_flops(shape); }

void report_progress(const RunOptions& options, const std::string& stage, double done) {
  if (options.progress) options.progress(stage, done);
}

void require_weights(const Weights& weights, const LayerTable& table) {
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

// The five matrices as a contender sees them. On a GPU, `session` holds their copies there.
WeightSet weight_set(const Weights& weights, const Session& session) {
  WeightSet set;
  for (std::size_t i = 0; i < set.size(); ++i) {
    const LayerInfo& layer = session.options.layers[i];
    set[i] = {layer.n, layer.k, layer.dtype, weights.matrices[i].data(),
              session.executor.is_cuda() ? session.weights[i]->data() : nullptr};
  }
  return set;
}

// Prepares one side; what goes wrong is appended to `failures`. Returns the seconds taken.
double prepare(Contender& who, const WeightSet& weights, double limit_s,
               std::vector<Failure>& failures) {
  Failure failure{};
  const Clock::time_point begin = Clock::now();
  try {
    who.prepare(weights);
  } catch (const std::exception& error) {
    failure.kind = FailureKind::prepare_failed;
    failure.detail = error.what();
    failures.push_back(failure);
  }
  const double elapsed_s = seconds_since(begin);
  if (elapsed_s > limit_s) {
    failure.kind = FailureKind::prepare_time;
    failure.measured = elapsed_s;
    failure.limit = limit_s;
    failures.push_back(failure);
  }
  return elapsed_s;
}

bool prepared(const std::vector<Failure>& failures) {
  return failures.empty() || failures.front().kind == FailureKind::prepare_time;
}

void run_cases(Session& session, RunResult& result) {
  const RunOptions& options = session.options;
  double total = 0;
  for (const Case& c : options.cases) total += case_work(resolve(c, options.layers));
  double done = 0;
  for (const Case& c : options.cases) {
    const Shape shape = resolve(c, options.layers);
    report_progress(options, fmt::format("{} m={}", shape.name, shape.m), done / total);
    try {
      result.cases.push_back(run_case(session, c));
    } catch (const std::exception& error) {
      if (result.contender_failures().empty() && result.baseline_failures().empty()) throw;
      Failure failure{};
      failure.kind = FailureKind::run_ended;
      failure.layer = shape.name;
      failure.m = shape.m;
      failure.detail = error.what();
      result.run_failures.push_back(failure);
      return;
    }
    done += case_work(shape);
  }
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
  double baseline_us = 0;
  bool with_baseline = true;
  for (const LayerInfo& layer : layers()) {
    const CaseResult* c = find_scored(result.cases, layer.layer, load.m);
    if (c == nullptr || !c->contender.time) return std::nullopt;
    sum.ours_us += c->contender.time->median;
    sum.floor_us += c->floor_us;
    sum.ceiling_us += c->ceiling_us.value_or(0);
    with_baseline = with_baseline && c->baseline && c->baseline->time;
    if (with_baseline) baseline_us += c->baseline->time->median;
  }
  if (with_baseline) {
    sum.baseline_us = baseline_us;
    sum.speedup = baseline_us / sum.ours_us;
  }
  return sum;
}

}  // namespace

std::vector<Failure> RunResult::contender_failures() const {
  std::vector<Failure> all = prepare_failures;
  for (const CaseResult& c : cases) {
    all.insert(all.end(), c.contender.failures.begin(), c.contender.failures.end());
  }
  all.insert(all.end(), run_failures.begin(), run_failures.end());
  return all;
}

std::vector<Failure> RunResult::baseline_failures() const {
  std::vector<Failure> all = baseline_prepare_failures;
  for (const CaseResult& c : cases) {
    if (c.baseline) {
      all.insert(all.end(), c.baseline->failures.begin(), c.baseline->failures.end());
    }
  }
  return all;
}

void summarise(RunResult& result) {
  result.loads.clear();
  result.score.reset();
  std::vector<double> speedups;
  for (const Load& load : loads()) {
    if (auto sum = sum_load(result, load)) {
      if (sum->speedup) speedups.push_back(*sum->speedup);
      result.loads.push_back(std::move(*sum));
    }
  }
  const bool sound = result.contender_failures().empty() && result.baseline_failures().empty();
  if (sound && speedups.size() == loads().size()) result.score = geometric_mean(speedups);
}

RunResult run_judge(Executor& executor, Contender& contender, Contender* baseline,
                    const Weights& weights, const RunOptions& options) {
  const Clock::time_point begin = Clock::now();
  require_weights(weights, options.layers);
  RunResult result;
  result.contender = contender.name();
  result.baseline = baseline == nullptr ? "" : baseline->name();
  result.weights = weights.origin;

  Session session{executor, contender, baseline, options, {}, 0, {}};
  for (std::size_t i = 0; i < session.weights.size(); ++i) {
    const std::size_t bytes = weights.matrices[i].size_bytes();
    session.weights[i] = executor.allocate(bytes);
    executor.upload(*session.weights[i], weights.matrices[i].data(), bytes);
  }
  const WeightSet set = weight_set(weights, session);
  report_progress(options, "prepare " + result.contender, 0);
  result.prepare_s = prepare(contender, set, options.prepare_limit_s, result.prepare_failures);
  if (baseline != nullptr) {
    report_progress(options, "prepare " + result.baseline, 0);
    result.baseline_prepare_s =
        prepare(*baseline, set, options.prepare_limit_s, result.baseline_prepare_failures);
    if (!prepared(result.baseline_prepare_failures)) session.baseline = nullptr;
  }
  if (prepared(result.prepare_failures)) {
    session.empty_us = executor.empty_replay_us(options.empty_repeats);
    result.empty_us = session.empty_us;
    run_cases(session, result);
  }
  report_progress(options, "done", 1);
  result.elapsed_s = seconds_since(begin);
  summarise(result);
  return result;
}

}  // namespace slimgemm::judge
