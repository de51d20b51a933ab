// SPDX-License-Identifier: Apache-2.0
// Times every GPU kernel instance on the judge's layers, in the judge's manner (graph replay, cold
// L2, empty replay subtracted, median), beside the cost model's estimate. What docs/decisions
// quotes.
//
//   kernel_sweep [--no-exceptions] [LAYER [M ...]]
#include "cuda/cuda_backend.hpp"
#include "judge/cases.hpp"
#include "judge/executor.hpp"
#include "plan/kernel_plan.hpp"

#include <slimgemm/slimgemm.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

constexpr int replays = 41;
constexpr double worst_ratio =
    2.0;  // instances estimated slower than this times the best are left out

std::uint16_t to_bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

/// Normal weights, sigma 0.02. Without exceptions: every exponent is moved into one window.
PackedMatrix make_weights(const judge::LayerInfo& layer, bool exceptions) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  const auto count = static_cast<std::size_t>(layer.n * layer.k);
  if (layer.dtype == DType::f32) {
    std::vector<float> w(count);
    for (float& value : w) value = normal(random);
    return pack(std::span<const float>(w), layer.n, layer.k);
  }
  std::vector<std::uint16_t> w(count);
  for (std::uint16_t& bits : w) {
    bits = to_bf16(normal(random));
    if (!exceptions) bits = (bits & 0x80FF) | 0x3C00;
  }
  return pack(std::span<const std::uint16_t>(w), layer.n, layer.k);
}

struct Timing {
  double measured_us;
  double estimated_us;
  plan::Instance instance;
};

class Sweep {
 public:
  explicit Sweep(bool exceptions)
      : executor_(judge::make_cuda_executor()),
        empty_us_(executor_->empty_replay_us(replays)),
        exceptions_(exceptions) {}

  void layer(const judge::LayerInfo& info, const std::vector<std::int64_t>& tokens) {
    const cuda::CudaBackend backend(make_weights(info, exceptions_), executor_->cuda_device());
    for (const std::int64_t m : tokens) shape(info, backend, m);
  }

 private:
  void shape(const judge::LayerInfo& info, const cuda::CudaBackend& backend, std::int64_t m) {
    const std::int64_t rows = m <= info.slice_max_m ? info.slice_n : info.n;
    const auto x_bytes = static_cast<std::size_t>(m * info.k * 2);
    const auto x = executor_->allocate(x_bytes);
    const auto out =
        executor_->allocate(static_cast<std::size_t>(m * rows * size_bytes(info.dtype)));
    std::vector<std::uint16_t> values(static_cast<std::size_t>(m * info.k));
    std::mt19937 random(2);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (std::uint16_t& bits : values) bits = to_bf16(normal(random));
    executor_->upload(*x, values.data(), x_bytes);

    const plan::Problem problem = backend.problem(rows, m, true);
    const double best_us = plan::plan_kernel(problem, backend.gpu()).estimated_us;
    std::vector<Timing> timings;
    for (const plan::Instance& instance : plan::instances_of(problem.encoding)) {
      const double us = plan::estimate_us(instance, problem, backend.gpu());
      if (!std::isfinite(us) || us > worst_ratio * best_us) continue;
      const plan::KernelPlan plan = plan::plan_instance(instance, problem, backend.gpu());
      const auto recorded = executor_->record([&](void* stream) {
        backend.run_with(plan, {.x = static_cast<const std::uint16_t*>(x->data()),
                                .m = m,
                                .x_row_stride = info.k,
                                .out = out->data(),
                                .row_begin = 0,
                                .row_end = rows,
                                .stream = stream});
      });
      std::vector<double> times_us;
      times_us.reserve(replays);
      for (int i = 0; i < replays; ++i) times_us.push_back(executor_->replay_us(*recorded, {}));
      std::nth_element(times_us.begin(), times_us.begin() + replays / 2, times_us.end());
      timings.push_back({times_us[replays / 2] - empty_us_, us, instance});
    }
    print(info, m, timings);
  }

  static void print(const judge::LayerInfo& info, std::int64_t m, std::vector<Timing>& timings) {
    const auto by_estimate = [](const Timing& a, const Timing& b) {
      return a.estimated_us < b.estimated_us;
    };
    const auto by_time = [](const Timing& a, const Timing& b) {
      return a.measured_us < b.measured_us;
    };
    const Timing chosen = *std::min_element(timings.begin(), timings.end(), by_estimate);
    std::sort(timings.begin(), timings.end(), by_time);
    std::printf("%s m=%lld: the plan's choice %.2f us, the best %.2f us\n",
                std::string(info.name).c_str(), static_cast<long long>(m), chosen.measured_us,
                timings.front().measured_us);
    for (const Timing& t : timings) {
      std::printf("  %6.2f us, estimated %6.2f  %s%s\n", t.measured_us, t.estimated_us,
                  plan::instance_name(t.instance).c_str(),
                  t.instance == chosen.instance ? "  <- plan" : "");
    }
    std::fflush(stdout);
  }

  std::unique_ptr<judge::Executor> executor_;
  double empty_us_;
  bool exceptions_;
};

int run(std::vector<std::string> arguments) {
  const auto flag = std::find(arguments.begin(), arguments.end(), "--no-exceptions");
  const bool exceptions = flag == arguments.end();
  if (!exceptions) arguments.erase(flag);
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 1; i < arguments.size(); ++i) tokens.push_back(std::stoll(arguments[i]));
  if (tokens.empty()) tokens = {1, 8, 16, 32, 48, 64, 128, 256};
  Sweep sweep(exceptions);
  for (const judge::LayerInfo& info : judge::layers()) {
    if (arguments.empty() || arguments[0] == info.name) sweep.layer(info, tokens);
  }
  return 0;
}

}  // namespace
}  // namespace slimgemm

int main(int argc, char** argv) {
  try {
    return slimgemm::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "kernel_sweep: %s\n", error.what());
    return 2;
  }
}
