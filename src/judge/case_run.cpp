// SPDX-License-Identifier: Apache-2.0
#include "judge/case_run.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <numeric>
#include <utility>

namespace slimgemm::judge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Smallest time that a subtraction of the empty replay may leave: the resolution of device events.
constexpr double time_us_min = 1e-3;

// One x on host and device, with the reference of its result.
struct PoolEntry {
  Input input;
  std::unique_ptr<Buffer> device;
  std::vector<double> reference;  // empty until first needed
};

// Contender or a baseline on one shape.
struct Side {
  Contender* who = nullptr;
  std::unique_ptr<Buffer> out;
  std::unique_ptr<Recorded> recorded;
  SideResult result;
  std::vector<double> times_us;
  std::vector<std::vector<std::byte>> checked;  // by input: the bytes last compared
  bool alive = false;
};

class CaseRun {
 public:
  CaseRun(Session& session, const Case& c)
      : session_(session),
        shape_(resolve(c, session.options.problem.layers)),
        baselines_(session.baselines.size()) {}

  CaseResult run() {
    make_pool();
    start(contender_, session_.contender);
    for (std::size_t i = 0; i < baselines_.size() && shape_.scored; ++i) {
      if (session_.baselines[i] != nullptr) start(baselines_[i], *session_.baselines[i]);
    }
    for (int i = 0; i < session_.options.warmup_replays && all_alive(); ++i) pair(i, false);
    if (shape_.scored) {
      timed_pairs();
    } else {
      for (int i = 0; i <= pool_size() && all_alive(); ++i) replay(contender_, i);
    }
    return finish();
  }

 private:
  [[nodiscard]] int pool_size() const { return static_cast<int>(pool_.size()); }
  [[nodiscard]] bool all_alive() const {
    return contender_.alive && std::all_of(baselines_.begin(), baselines_.end(), [](const Side& b) {
             return b.recorded == nullptr || b.alive;
           });
  }

  // x lies before a zone of poison, so that reading past its end gives NaN.
  void make_pool() {
    const RunOptions& options = session_.options;
    const auto x_bytes = static_cast<std::size_t>(shape_.m * shape_.k * 2);
    for (int i = 0; i < input_count(shape_.m); ++i) {
      PoolEntry entry;
      entry.input = make_input(shape_.m, shape_.k, options.seed, shape_.layer, i, options.threads);
      entry.device = session_.executor.allocate(x_bytes);
      session_.executor.upload(*entry.device, entry.input.x.data(), x_bytes);
      pool_.push_back(std::move(entry));
    }
    std::vector<std::uint16_t> padded = pool_.back().input.x;
    padded.resize(padded.size() + guard_bytes / 2, 0xFFFF);
    x_ = session_.executor.allocate(padded.size() * 2);
    session_.executor.upload(*x_, padded.data(), padded.size() * 2);
  }

  void fail(Side& side, Failure failure) {
    for (const Failure& known : side.result.failures) {
      if (known.kind == failure.kind) return;  // the first of a kind names the place
    }
    side.result.failures.push_back(std::move(failure));
  }

  void fail_call(Side& side, const std::exception& error) {
    Failure failure{};
    failure.kind = FailureKind::call_failed;
    failure.layer = shape_.name;
    failure.m = shape_.m;
    failure.detail = error.what();
    fail(side, std::move(failure));
    side.alive = false;
  }

  void start(Side& side, Contender& who) {
    side.who = &who;
    side.checked.resize(pool_.size());
    side.out = session_.executor.allocate(guarded_bytes(shape_));
    void* out = static_cast<std::byte*>(side.out->data()) + guard_bytes;
    const void* x = x_->data();
    try {
      side.recorded = session_.executor.record(
          [this, &who, x, out](void* stream) { who.run(shape_.layer, x, shape_.m, out, stream); });
      side.alive = true;
    } catch (const std::exception& error) {
      fail_call(side, error);
    }
  }

  // Replays on input `index`, checks the result and returns the time less the empty replay; 0 if
  // the call failed.
  double replay(Side& side, int index) {
    const auto number = static_cast<std::size_t>(index % pool_size());
    PoolEntry& entry = pool_[number];
    Preparation preparation;
    preparation.x_source = entry.device.get();
    preparation.x = x_.get();
    preparation.x_bytes = entry.input.x.size() * 2;
    preparation.out = side.out.get();
    double time_us = 0;
    std::vector<std::byte> bytes(side.out->size_bytes());
    try {
      time_us = session_.executor.replay_us(*side.recorded, preparation);
      session_.executor.download(bytes.data(), *side.out, 0, bytes.size());
    } catch (const std::exception& error) {
      fail_call(side, error);
      return 0;
    }
    check(side, entry, side.checked[number], std::move(bytes));
    return std::max(time_us - session_.empty_us, time_us_min);
  }

  // The first result on an input is compared with the reference; later ones need no more than the
  // same bits, and are compared with the reference where the bits differ.
  void check(Side& side, PoolEntry& entry, std::vector<std::byte>& checked,
             std::vector<std::byte> bytes) {
    ++side.result.replays_checked;
    if (bytes == checked) return;
    if (checked.empty()) {
      ++side.result.inputs_checked;
    } else {
      side.result.bit_identical = false;
    }
    if (entry.reference.empty()) {
      const Buffer& w = *session_.weights[static_cast<std::size_t>(shape_.layer)];
      entry.reference =
          session_.executor.reference(*entry.device, w, shape_.dtype, shape_.m, shape_.n, shape_.k);
    }
    OutputCheck result = check_output(shape_, entry.input, entry.reference, bytes);
    side.result.errors.worsen(result.errors);
    for (Failure& failure : result.failures) fail(side, std::move(failure));
    checked = std::move(bytes);
  }

  // All sides on the same input; who goes first changes.
  void pair(int index, bool timed) {
    std::vector<Side*> sides{&contender_};
    for (Side& baseline : baselines_) {
      if (baseline.alive) sides.push_back(&baseline);
    }
    std::vector<double> times_us(sides.size());
    for (const std::size_t i : turn_order(sides.size(), index)) {
      times_us[i] = replay(*sides[i], index);
    }
    if (!timed || !all_alive()) return;
    for (std::size_t i = 0; i < sides.size(); ++i) sides[i]->times_us.push_back(times_us[i]);
  }

  void timed_pairs() {
    const RunOptions& options = session_.options;
    const int pairs_min = pool_size() + 1;  // every input, and one of them twice
    const Clock::time_point begin = Clock::now();
    for (int i = 0; all_alive(); ++i) {
      if (options.repeats > 0) {
        if (i >= std::max(options.repeats, pairs_min)) break;
      } else if (i >= pairs_min) {
        const double budgets = seconds_since(begin) / options.case_budget_s;
        if (i >= options.pairs_max || budgets > 3) break;
        if (i >= pairs_for_interval && budgets > 1) break;
      }
      pair(i, true);
    }
  }

  void describe(CaseResult& result) {
    try {
      result.weight_bytes = session_.contender.weight_bytes(shape_.layer, shape_.m);
      result.kernel = session_.contender.describe(shape_.layer, shape_.m);
    } catch (const std::exception& error) {
      fail_call(contender_, error);
    }
  }

  CaseResult finish() {
    CaseResult result;
    result.shape = shape_;
    result.floor_us = floor_us(shape_);
    describe(result);
    if (!contender_.times_us.empty()) {
      contender_.result.time = spread(contender_.times_us);
      const auto weight_bytes = static_cast<std::size_t>(result.weight_bytes);
      const auto x_bytes = static_cast<std::size_t>(shape_.m * shape_.k * 2);
      result.ceiling_us = session_.ceiling_us(weight_bytes + x_bytes + output_bytes(shape_));
    }
    for (Side& side : baselines_) {
      auto& baseline = result.baselines.emplace_back();
      if (side.who == nullptr) continue;
      baseline.emplace();
      if (!side.times_us.empty()) {
        side.result.time = spread(side.times_us);
        baseline->speedup = paired_speedup(contender_.times_us, side.times_us);
      }
      baseline->side = std::move(side.result);
    }
    result.contender = std::move(contender_.result);
    return result;
  }

  Session& session_;
  Shape shape_;
  std::vector<PoolEntry> pool_;
  std::unique_ptr<Buffer> x_;
  Side contender_;
  std::vector<Side> baselines_;
};

}  // namespace

double Session::ceiling_us(std::size_t bytes) {
  const auto known = ceilings.find(bytes);
  if (known != ceilings.end()) return known->second;
  return ceilings[bytes] = executor.streaming_read_us(bytes, options.ceiling_repeats);
}

std::vector<std::size_t> turn_order(std::size_t sides, int round) {
  std::vector<std::size_t> order(sides);
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto number = static_cast<std::size_t>(round);
  std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(number % sides),
              order.end());
  if (sides > 2 && number / sides % 2 == 1) std::reverse(order.begin(), order.end());
  return order;
}

CaseResult run_case(Session& session, const Case& c) { return CaseRun(session, c).run(); }

}  // namespace slimgemm::judge
