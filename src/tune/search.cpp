// SPDX-License-Identifier: Apache-2.0
#include "judge/inputs.hpp"
#include "tune/tune.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace slimgemm::tune {
namespace {

constexpr std::uint64_t input_seed = 1;
// Smallest time that a subtraction of the empty replay may leave: the resolution of device events.
constexpr double time_us_min = 1e-3;

/// An instance in the running.
struct Runner {
  Attempt attempt;
  std::unique_ptr<judge::Recorded> recorded;
  std::vector<double> times_us;

  [[nodiscard]] bool alive() const { return attempt.failure.empty(); }
  void fail(const Error& error) {
    attempt.failure = error.what();
    attempt.time.reset();
  }
};

class ShapeSearch {
 public:
  ShapeSearch(judge::Executor& executor, const Matrix& matrix, const Options& options,
              plan::Problem problem)
      : executor_(executor), matrix_(matrix), options_(options), problem_(problem) {}

  ShapeResult run(DType out_dtype) {
    make_memory(out_dtype);
    ShapeResult result;
    result.problem = problem_;
    result.model_choice = plan::plan_by_model(problem_, matrix_.gpu()).instance;
    result.empty_us = empty_us_ = executor_.empty_replay_us({options_.empty_repeats});
    enter_all();
    run_rounds(options_.screening_rounds, [](const Runner&) { return true; });
    choose_finalists(result.model_choice);
    run_rounds(options_.final_rounds, [](const Runner& r) { return r.attempt.finalist; });
    result.attempts = ranked();
    return result;
  }

 private:
  void make_memory(DType out_dtype) {
    const judge::Input input =
        judge::make_input(problem_.m, problem_.k, input_seed, judge::Layer{}, 0);
    x_bytes_ = input.x.size() * sizeof(std::uint16_t);
    x_ = executor_.allocate(x_bytes_);
    x_source_ = executor_.allocate(x_bytes_);
    executor_.upload(*x_, input.x.data(), x_bytes_);
    executor_.upload(*x_source_, input.x.data(), x_bytes_);
    out_ = executor_.allocate(
        static_cast<std::size_t>(problem_.m * problem_.rows * size_bytes(out_dtype)));
  }

  void enter_all() {
    for (const plan::Instance& instance : plan::instances_of(problem_.encoding)) {
      Runner runner;
      runner.attempt.instance = instance;
      runner.attempt.estimated_us = plan::estimate_us(instance, problem_, matrix_.gpu());
      if (!std::isfinite(runner.attempt.estimated_us)) continue;
      const plan::KernelPlan plan = plan::plan_instance(instance, problem_, matrix_.gpu());
      const RunArgs args{.x = static_cast<const std::uint16_t*>(x_->data()),
                         .m = problem_.m,
                         .x_row_stride = problem_.k,
                         .out = out_->data(),
                         .row_begin = 0,
                         .row_end = problem_.rows};
      try {
        runner.recorded = executor_.record([&](void* stream) {
          RunArgs on_stream = args;
          on_stream.stream = stream;
          matrix_.run(plan, on_stream);
        });
      } catch (const Error& error) {
        runner.fail(error);
      }
      runners_.push_back(std::move(runner));
    }
  }

  void replay(Runner& runner) {
    const judge::Preparation preparation{
        .x_source = x_source_.get(), .x = x_.get(), .x_bytes = x_bytes_, .out = out_.get()};
    try {
      const double us = executor_.replay_us(*runner.recorded, preparation) - empty_us_;
      runner.times_us.push_back(std::max(us, time_us_min));
    } catch (const Error& error) {
      runner.fail(error);
    }
  }

  /// Replays those that `takes_part` in turn, every second round backwards.
  template <typename Predicate>
  void run_rounds(int rounds, Predicate takes_part) {
    std::vector<Runner*> field;
    for (Runner& runner : runners_) {
      if (!runner.alive() || !takes_part(runner)) continue;
      runner.times_us.clear();
      field.push_back(&runner);
    }
    for (int round = 0; round < rounds; ++round) {
      for (Runner* runner : field) {
        if (runner->alive()) replay(*runner);
      }
      std::reverse(field.begin(), field.end());
    }
    for (Runner* runner : field) {
      if (runner->alive()) runner->attempt.time = judge::spread(runner->times_us);
    }
  }

  void choose_finalists(const plan::Instance& model_choice) {
    double best_us = std::numeric_limits<double>::infinity();
    for (const Runner& runner : runners_) {
      if (runner.alive()) best_us = std::min(best_us, runner.attempt.median_us());
    }
    for (Runner& runner : runners_) {
      runner.attempt.finalist =
          runner.alive() && (runner.attempt.instance == model_choice ||
                             runner.attempt.median_us() <= options_.finalist_ratio * best_us);
    }
  }

  std::vector<Attempt> ranked() {
    std::vector<Attempt> attempts;
    for (Runner& runner : runners_) attempts.push_back(std::move(runner.attempt));
    std::stable_sort(attempts.begin(), attempts.end(), [](const Attempt& a, const Attempt& b) {
      return a.time && (!b.time || a.time->median < b.time->median);
    });
    return attempts;
  }

  judge::Executor& executor_;
  const Matrix& matrix_;
  const Options& options_;
  plan::Problem problem_;
  double empty_us_ = 0;
  std::size_t x_bytes_ = 0;
  std::unique_ptr<judge::Buffer> x_;
  std::unique_ptr<judge::Buffer> x_source_;
  std::unique_ptr<judge::Buffer> out_;
  std::vector<Runner> runners_;
};

}  // namespace

const Attempt* ShapeResult::best() const {
  const auto found = std::find_if(attempts.begin(), attempts.end(),
                                  [](const Attempt& a) { return a.finalist && a.time; });
  return found == attempts.end() ? nullptr : &*found;
}

const Attempt& ShapeResult::model() const {
  const auto found = std::find_if(attempts.begin(), attempts.end(),
                                  [this](const Attempt& a) { return a.instance == model_choice; });
  if (found == attempts.end()) {
    throw Error(ErrorCode::invalid_argument,
                "the cost model's choice " + plan::instance_name(model_choice) + " was not tried");
  }
  return *found;
}

std::optional<double> ShapeResult::model_ratio() const {
  if (!model().time) return std::nullopt;
  return model().median_us() / best()->median_us();
}

bool Result::has_failures() const {
  return std::any_of(shapes.begin(), shapes.end(), [](const ShapeResult& shape) {
    return std::any_of(shape.attempts.begin(), shape.attempts.end(),
                       [](const Attempt& attempt) { return !attempt.failure.empty(); });
  });
}

Result search(Machine& machine, const std::vector<Job>& jobs, const Options& options) {
  std::size_t shapes = 0;
  for (const Job& job : jobs) shapes += job.tokens.size();
  Result result;
  const auto report = [&](const std::string& stage) {
    if (!options.progress) return;
    options.progress(stage,
                     static_cast<double>(result.shapes.size()) / static_cast<double>(shapes));
  };
  for (const Job& job : jobs) {
    report(fmt::format("{}: packing {} x {} weights", job.layer.name, job.layer.n, job.layer.k));
    const std::unique_ptr<Matrix> matrix = machine.make_matrix(job);
    result.gpu = matrix->gpu();
    for (const std::int64_t m : job.tokens) {
      report(fmt::format("{} m={}", job.layer.name, m));
      const std::int64_t rows = m <= job.layer.slice_max_m ? job.layer.slice_n : job.layer.n;
      ShapeSearch shape(*machine.executor, *matrix, options, matrix->problem(rows, m));
      result.shapes.push_back(shape.run(job.layer.dtype));
      result.shapes.back().layer = job.layer.name;
      if (options.found) options.found(result.shapes.back());
    }
  }
  return result;
}

}  // namespace slimgemm::tune
