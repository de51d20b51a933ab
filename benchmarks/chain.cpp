// SPDX-License-Identifier: Apache-2.0
#include "chain.hpp"

#include "judge/case_run.hpp"
#include "judge/inputs.hpp"
#include "support/bf16.hpp"

#include <slimgemm/slimgemm.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <utility>

namespace slimgemm::bench {
namespace {

constexpr std::uint64_t seed = 1;
constexpr int warmup_rounds = 2;
constexpr std::size_t out_alignment = 256;
// Smallest time that a subtraction of the empty replay may leave: the resolution of device events.
constexpr double time_us_min = 1e-3;

std::size_t out_bytes(const judge::Shape& shape) {
  return static_cast<std::size_t>(shape.m * shape.n * size_bytes(shape.dtype));
}

PackedMatrix pack_weights(const judge::Weights::Matrix& w, const judge::LayerInfo& layer) {
  if (layer.dtype == DType::f32) return pack(std::span<const float>(w.f32), layer.n, layer.k);
  return pack(std::span<const std::uint16_t>(w.bf16), layer.n, layer.k);
}

/// Layer `step` of pass `pass`, weights of their own.
using Call = std::function<void(int pass, int step, const void* x, void* out, void* stream)>;

/// Copies of all layers for every pass, and a call that runs them.
class Copies {
 public:
  Copies(const judge::LayerTable& layers, const std::vector<PackedMatrix>& packed, int passes,
         const LinearOptions& options)
      : layers_(layers) {
    for (int pass = 0; pass < passes; ++pass) {
      for (const PackedMatrix& matrix : packed) linears_.emplace_back(matrix, options);
    }
  }

  [[nodiscard]] Linear serving(int pass, int step, std::int64_t m) const {
    const judge::LayerInfo& layer = layers_[static_cast<std::size_t>(step)];
    const Linear& linear =
        linears_[static_cast<std::size_t>(pass) * layers_.size() + static_cast<std::size_t>(step)];
    return m <= layer.slice_max_m ? linear.rows(0, layer.slice_n) : linear;
  }
  [[nodiscard]] Call call(std::int64_t m) const {
    return [this, m](int pass, int step, const void* x, void* out, void* stream) {
      serving(pass, step, m).run(static_cast<const std::uint16_t*>(x), m, out, stream);
    };
  }

 private:
  judge::LayerTable layers_;
  std::vector<Linear> linears_;
};

/// The dense weights of every pass and the baseline that reads them.
struct Baseline {
  std::vector<std::unique_ptr<judge::Buffer>> weights;
  std::unique_ptr<judge::Contender> contender;
};

Baseline prepare_baseline(judge::Executor& executor, const ChainOptions& options,
                          const judge::Weights& weights, const MakeBaseline& make_baseline) {
  Baseline baseline;
  if (!make_baseline) return baseline;
  judge::Problem problem;
  judge::WeightSet set;
  for (int pass = 0; pass < options.passes; ++pass) {
    for (std::size_t i = 0; i < options.layers.size(); ++i) {
      judge::LayerInfo layer = options.layers[i];
      layer.layer = static_cast<judge::Layer>(problem.layers.size());
      problem.layers.push_back(layer);
      for (const std::int64_t m : options.tokens) problem.cases.push_back({layer.layer, m, true});
      const judge::Weights::Matrix& host = weights.matrices[i];
      auto& device = baseline.weights.emplace_back(executor.allocate(host.size_bytes()));
      executor.upload(*device, host.data(), host.size_bytes());
      set.push_back({layer.n, layer.k, layer.dtype, host.data(),
                     executor.is_cuda() ? device->data() : nullptr});
    }
  }
  baseline.contender = make_baseline(problem);
  baseline.contender->prepare(set);
  return baseline;
}

/// A recorded call and its times.
struct Side {
  std::unique_ptr<judge::Recorded> recorded{};
  std::vector<double> times_us{};
};

/// The chains of one token count.
class ChainRun {
 public:
  ChainRun(judge::Executor& executor, const ChainOptions& options, std::int64_t m)
      : executor_(executor), options_(options) {
    result_.m = m;
    result_.steps = connect(options.layers, m);
    make_memory(m);
  }

  ChainResult run(const Copies& plain, const Copies& programmatic, judge::Contender* baseline) {
    const std::int64_t m = result_.m;
    plain_.recorded = record_chain(plain.call(m));
    programmatic_.recorded = record_chain(programmatic.call(m));
    for (int step = 0; step < step_count(); ++step) {
      single_.push_back({executor_.record([this, step, call = plain.call(m)](void* stream) {
        call(0, step, fixed_x_->data(), out_of(step), stream);
      })});
      step_at(step).kernel = plain.serving(0, step, m).plan(m).kernel;
    }
    if (baseline != nullptr) {
      baseline_.recorded =
          record_chain([=, this](int pass, int step, const void* x, void* out, void* stream) {
            baseline->run(judge::Layer{pass * step_count() + step}, x, m, out, stream);
          });
    }
    measure();
    summarise();
    return std::move(result_);
  }

 private:
  [[nodiscard]] int step_count() const { return static_cast<int>(result_.steps.size()); }
  Step& step_at(int step) { return result_.steps[static_cast<std::size_t>(step)]; }

  void make_memory(std::int64_t m) {
    std::int64_t k_max = 0;
    std::size_t bytes = 0;
    for (const Step& step : result_.steps) {
      k_max = std::max(k_max, step.shape.k);
      out_begin_.push_back(bytes);
      bytes += (out_bytes(step.shape) + out_alignment - 1) / out_alignment * out_alignment;
    }
    outs_ = executor_.allocate(bytes);
    const judge::Input input = judge::make_input(m, k_max, seed, judge::Layer{}, 0);
    x_bytes_ = input.x.size() * sizeof(input.x[0]);
    x_source_ = executor_.allocate(x_bytes_);
    fixed_x_ = executor_.allocate(x_bytes_);
    executor_.upload(*x_source_, input.x.data(), x_bytes_);
    executor_.upload(*fixed_x_, input.x.data(), x_bytes_);
  }

  [[nodiscard]] void* out_of(int step) const {
    return static_cast<std::byte*>(outs_->data()) + out_begin_[static_cast<std::size_t>(step)];
  }
  [[nodiscard]] const void* x_of(int pass, int step) {
    const int from = step_at(step).x_from;
    const bool written = from != Step::fixed_x && (pass > 0 || from < step);
    return written ? out_of(from) : fixed_x_->data();
  }

  std::unique_ptr<judge::Recorded> record_chain(Call call) {
    return executor_.record([this, call = std::move(call)](void* stream) {
      for (int pass = 0; pass < options_.passes; ++pass) {
        for (int step = 0; step < step_count(); ++step) {
          call(pass, step, x_of(pass, step), out_of(step), stream);
        }
      }
    });
  }

  void measure() {
    std::vector<Side*> sides{&plain_, &programmatic_};
    for (Side& side : single_) sides.push_back(&side);
    if (baseline_.recorded) sides.push_back(&baseline_);
    result_.empty_us = executor_.empty_replay_us({options_.replays});
    for (int round = 0; round < warmup_rounds + options_.replays; ++round) {
      for (const std::size_t i : judge::turn_order(sides.size(), round)) {
        const double us = replay(*sides[i]);
        if (round >= warmup_rounds) sides[i]->times_us.push_back(us);
      }
    }
  }

  double replay(Side& side) {
    const judge::Preparation preparation{
        .x_source = x_source_.get(), .x = fixed_x_.get(), .x_bytes = x_bytes_, .out = outs_.get()};
    const double us = executor_.replay_us(*side.recorded, preparation) - result_.empty_us;
    if (&side == &plain_) check("slimgemm");
    if (&side == &programmatic_) check("slimgemm, programmatic launches");
    return std::max(us, time_us_min);
  }

  /// Compares what the last pass wrote with the first chain's.
  void check(const char* who) {
    std::vector<std::byte> bytes(outs_->size_bytes());
    executor_.download(bytes.data(), *outs_, 0, bytes.size());
    const bool first = expected_.empty();
    if (first) expected_ = bytes;
    for (int step = 0; step < step_count(); ++step) {
      const judge::Shape& shape = step_at(step).shape;
      const std::size_t begin = out_begin_[static_cast<std::size_t>(step)];
      if (first && has_nan(shape, bytes.data() + begin)) {
        fail(fmt::format("m={}: {}: out of {} has a NaN, or an element that was not written",
                         result_.m, who, shape.name));
      }
      if (std::memcmp(bytes.data() + begin, expected_.data() + begin, out_bytes(shape)) != 0) {
        fail(fmt::format("m={}: {}: out of {} is not what the first chain gave", result_.m, who,
                         shape.name));
      }
    }
  }

  static bool has_nan(const judge::Shape& shape, const std::byte* out) {
    for (std::int64_t i = 0; i < shape.m * shape.n; ++i) {
      float value = 0;
      if (shape.dtype == DType::bf16) {
        std::uint16_t bits = 0;
        std::memcpy(&bits, out + 2 * i, sizeof bits);
        value = bf16_to_float(bits);
      } else {
        std::memcpy(&value, out + 4 * i, sizeof value);
      }
      if (std::isnan(value)) return true;
    }
    return false;
  }

  void fail(std::string failure) {
    std::vector<std::string>& known = result_.failures;
    if (std::find(known.begin(), known.end(), failure) == known.end()) {
      known.push_back(std::move(failure));
    }
  }

  void summarise() {
    result_.plain = judge::spread(plain_.times_us);
    result_.programmatic = judge::spread(programmatic_.times_us);
    result_.gain = judge::paired_speedup(programmatic_.times_us, plain_.times_us);
    for (const Side& side : single_) result_.single.push_back(judge::spread(side.times_us));
    if (baseline_.recorded) {
      result_.baseline = judge::spread(baseline_.times_us);
      result_.baseline_ratio = judge::paired_speedup(baseline_.times_us, plain_.times_us);
    }
  }

  judge::Executor& executor_;
  const ChainOptions& options_;
  ChainResult result_;
  std::size_t x_bytes_ = 0;
  std::unique_ptr<judge::Buffer> x_source_;
  std::unique_ptr<judge::Buffer> fixed_x_;
  std::unique_ptr<judge::Buffer> outs_;  // of all steps; every pass writes it anew
  std::vector<std::size_t> out_begin_;   // by step, in bytes
  std::vector<std::byte> expected_;
  Side plain_;
  Side programmatic_;
  std::vector<Side> single_;
  Side baseline_;
};

}  // namespace

std::vector<Step> connect(const judge::LayerTable& layers, std::int64_t m) {
  std::vector<Step> steps;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    steps.push_back({judge::resolve({static_cast<judge::Layer>(i), m, true}, layers)});
  }
  // A layer does not feed itself: its x and its out would be the same memory.
  for (std::size_t i = 0; i < steps.size() && steps.size() > 1; ++i) {
    const std::size_t before = (i + steps.size() - 1) % steps.size();
    const judge::Shape& from = steps[before].shape;
    if (from.dtype == DType::bf16 && from.n == steps[i].shape.k) {
      steps[i].x_from = static_cast<int>(before);
    }
  }
  return steps;
}

double ChainResult::single_sum_us() const {
  return std::accumulate(single.begin(), single.end(), 0.0,
                         [](double sum, const judge::Spread& s) { return sum + s.median; });
}

bool ChainReport::passed() const {
  return std::all_of(results.begin(), results.end(),
                     [](const ChainResult& result) { return result.failures.empty(); });
}

ChainReport run_chains(judge::Executor& executor, const ChainOptions& options,
                       const MakeBaseline& make_baseline) {
  const auto progress = [&](const std::string& stage, std::size_t done) {
    if (!options.progress) return;
    options.progress(stage, static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(
                                                            options.tokens.size(), 1)));
  };
  progress("weights", 0);
  const judge::Weights weights = judge::generate_weights(options.layers, seed);
  ChainReport report;
  report.passes = options.passes;
  std::vector<PackedMatrix> packed;
  for (std::size_t i = 0; i < options.layers.size(); ++i) {
    report.layers.push_back(options.layers[i].name);
    packed.push_back(pack_weights(weights.matrices[i], options.layers[i]));
    report.weight_bytes += static_cast<std::int64_t>(packed.back().bytes().size()) * options.passes;
  }
  LinearOptions linear;
  linear.device = executor.is_cuda() ? Device::cuda : Device::cpu;
  linear.cuda_device = std::max(executor.cuda_device(), 0);
  const Copies plain(options.layers, packed, options.passes, linear);
  linear.programmatic_launch = true;
  const Copies programmatic(options.layers, packed, options.passes, linear);
  const Baseline baseline = prepare_baseline(executor, options, weights, make_baseline);
  if (baseline.contender) report.baseline = baseline.contender->name();
  for (std::size_t i = 0; i < options.tokens.size(); ++i) {
    progress(fmt::format("m={}", options.tokens[i]), i);
    ChainRun chain(executor, options, options.tokens[i]);
    report.results.push_back(chain.run(plain, programmatic, baseline.contender.get()));
  }
  return report;
}

}  // namespace slimgemm::bench
