// SPDX-License-Identifier: Apache-2.0
// The search behind `slimgemm tune`: times every kernel instance that can serve a shape, in the
// judge's manner, and sets the cost model's choice beside the fastest.
#pragma once

#include "judge/cases.hpp"
#include "judge/executor.hpp"
#include "judge/statistics.hpp"
#include "linear/backend.hpp"
#include "plan/kernel_plan.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::tune {

/// One weight matrix and the token counts to time it with. The layer's slice (LayerInfo::slice_n
/// rows at m <= slice_max_m) counts: such an m is a shape of so many rows.
struct Job {
  judge::LayerInfo layer;
  Encoding encoding = Encoding::split12;
  std::vector<std::int64_t> tokens;
};

/// A job's weights, ready to be multiplied by any instance.
class Matrix {
 public:
  virtual ~Matrix() = default;
  [[nodiscard]] virtual const plan::GpuFacts& gpu() const = 0;
  /// The call that computes the first `rows` output features of m tokens, x aligned.
  [[nodiscard]] virtual plan::Problem problem(std::int64_t rows, std::int64_t m) const = 0;
  virtual void run(const plan::KernelPlan& plan, const RunArgs& args) const = 0;
};

/// What measures.
struct Machine {
  std::unique_ptr<judge::Executor> executor;
  std::function<std::unique_ptr<Matrix>(const Job&)> make_matrix;
};

struct ShapeResult;

struct Options {
  /// First every instance is replayed so often, round by round, so that a drift hits all alike.
  int screening_rounds = 11;
  /// Then so often those whose median was at most finalist_ratio times the lowest, and the cost
  /// model's choice.
  int final_rounds = 101;
  double finalist_ratio = 1.25;
  int empty_repeats = 51;
  /// Called with what is being done and the share of the work that is done.
  std::function<void(const std::string& stage, double done)> progress{};
  /// Called with every shape's result as soon as it is known.
  std::function<void(const ShapeResult& shape)> found{};
};

/// What became of one instance on one shape.
struct Attempt {
  plan::Instance instance;
  double estimated_us = 0;
  /// Microseconds of a replay, the empty replay subtracted, over the last rounds that it was in.
  std::optional<judge::Spread> time;
  bool finalist = false;
  std::string failure;  ///< why there is no time

  [[nodiscard]] double median_us() const { return time.value().median; }
};

struct ShapeResult {
  std::string layer;
  plan::Problem problem;
  double empty_us = 0;
  plan::Instance model_choice;
  std::vector<Attempt> attempts;  ///< by time; last those that failed

  /// The fastest finalist; null if every instance failed.
  [[nodiscard]] const Attempt* best() const;
  [[nodiscard]] const Attempt& model() const;
  /// Time of the cost model's choice over that of the best; nothing where the choice failed.
  [[nodiscard]] std::optional<double> model_ratio() const;
};

struct Result {
  plan::GpuFacts gpu;
  std::vector<ShapeResult> shapes;

  [[nodiscard]] bool has_failures() const;
};

/// Times all shapes of all jobs. An instance that fails is kept as a failure and the search goes
/// on. Errors: those of the executor and of make_matrix.
Result search(Machine& machine, const std::vector<Job>& jobs, const Options& options);

/// The GPU: the judge's executor and SlimGEMM's own backend. Weights are normal; with an exception
/// share all are moved into one window, but for that share of the BF16 weights of split12 layers.
/// Errors: unsupported in a build without CUDA or on a machine without a usable GPU.
Machine make_cuda_machine(std::optional<double> exception_share = std::nullopt);

}  // namespace slimgemm::tune
