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

// A replay that waits for its batch to be full.
struct Waiting {
  Side* side;
  std::size_t input;
  bool timed;
};

class CaseRun {
 public:
  CaseRun(Session& session, const Case& c)
      : session_(session),
        shape_(resolve(c, session.options.problem.layers)),
        baselines_(session.baselines.size()),
        batch_max_(
            static_cast<std::size_t>(replays_queued(session.options, guarded_bytes(shape_)))) {}

  CaseResult run() {
    make_pool();
    start(contender_, session_.contender);
    for (std::size_t i = 0; i < baselines_.size() && shape_.scored; ++i) {
      if (session_.baselines[i] != nullptr) start(baselines_[i], *session_.baselines[i]);
    }
    for (int i = 0; i < session_.options.warmup_replays && all_alive(); ++i) pair(i, false);
    run_batch();
    if (shape_.scored) {
      timed_pairs();
    } else {
      for (int i = 0; i <= pool_size() && all_alive(); ++i) enqueue(contender_, i, false);
    }
    run_batch();
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

  void fail_call(Side& side, std::string why) {
    Failure failure{};
    failure.kind = FailureKind::call_failed;
    failure.layer = shape_.name;
    failure.m = shape_.m;
    failure.detail = std::move(why);
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
      fail_call(side, error.what());
    }
  }

  // Input `index` next. Runs the batch if it is full.
  void enqueue(Side& side, int index, bool timed) {
    batch_.push_back({&side, static_cast<std::size_t>(index % pool_size()), timed});
    if (batch_.size() >= batch_max_) run_batch();
  }

  // Runs what waits, checks every result, and keeps the times less the empty replay.
  void run_batch() {
    const std::vector<Waiting> batch = std::exchange(batch_, {});
    if (batch.empty()) return;
    const std::vector<Replay> replays = replays_of(batch);
    std::vector<double> times_us;
    try {
      times_us = session_.executor.replay_batch_us(replays);
    } catch (const std::exception& error) {
      fail_batch(batch, error);
      return;
    }
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Side& side = *batch[i].side;
      const Buffer& result =
          replays[i].out_copy != nullptr ? *replays[i].out_copy : *replays[i].preparation.out;
      std::vector<std::byte> bytes(side.out->size_bytes());
      try {
        session_.executor.download(bytes.data(), result, 0, bytes.size());
      } catch (const std::exception& error) {
        fail_call(side, error.what());
        continue;
      }
      check(side, pool_[batch[i].input], side.checked[batch[i].input], std::move(bytes));
      if (!batch[i].timed) continue;
      side.times_us.push_back(std::max(times_us[i] - session_.empty_us, time_us_min));
    }
  }

  // A result is copied aside if a later replay of the batch writes to the same place.
  std::vector<Replay> replays_of(const std::vector<Waiting>& batch) {
    std::vector<Replay> replays(batch.size());
    std::size_t copies = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      const PoolEntry& entry = pool_[batch[i].input];
      Side& side = *batch[i].side;
      replays[i].recorded = side.recorded.get();
      replays[i].preparation = {entry.device.get(), x_.get(), entry.input.x.size() * 2,
                                side.out.get()};
      const auto rest = batch.begin() + static_cast<std::ptrdiff_t>(i) + 1;
      if (std::none_of(rest, batch.end(), [&](const Waiting& w) { return w.side == &side; })) {
        continue;
      }
      if (copies == copies_.size()) {
        copies_.push_back(session_.executor.allocate(side.out->size_bytes()));
      }
      replays[i].out_copy = copies_[copies++].get();
    }
    return replays;
  }

  // Of several sides in one batch, any may be the one whose call failed.
  void fail_batch(const std::vector<Waiting>& batch, const std::exception& error) {
    std::vector<Side*> sides;
    for (const Waiting& waiting : batch) {
      if (std::find(sides.begin(), sides.end(), waiting.side) == sides.end()) {
        sides.push_back(waiting.side);
      }
    }
    std::string why = error.what();
    if (sides.size() > 1) {
      why += " (a batch of " + std::to_string(batch.size()) +
             " replays failed, of contender and baselines; to know whose call it was, judge "
             "without --queue-replays)";
    }
    for (Side* side : sides) fail_call(*side, why);
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
    for (const std::size_t i : turn_order(sides.size(), index)) enqueue(*sides[i], index, timed);
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
      fail_call(contender_, error.what());
    }
  }

  // A batch that failed may have ended within a pair.
  void drop_incomplete_pairs() {
    std::size_t pairs = contender_.times_us.size();
    for (const Side& side : baselines_) {
      if (side.recorded != nullptr) pairs = std::min(pairs, side.times_us.size());
    }
    contender_.times_us.resize(pairs);
    for (Side& side : baselines_) side.times_us.resize(std::min(pairs, side.times_us.size()));
  }

  CaseResult finish() {
    drop_incomplete_pairs();
    CaseResult result;
    result.shape = shape_;
    result.replays_queued = static_cast<int>(batch_max_);
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
  std::size_t batch_max_;
  std::vector<Waiting> batch_;
  std::vector<std::unique_ptr<Buffer>> copies_;  // outputs of a batch
};

}  // namespace

double Session::ceiling_us(std::size_t bytes) {
  const auto known = ceilings.find(bytes);
  if (known != ceilings.end()) return known->second;
  const double time_us =
      executor.streaming_read_us(bytes, {options.ceiling_repeats, options.replays_queued});
  return ceilings[bytes] = std::max(time_us - empty_us, 0.0);
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

int replays_queued(const RunOptions& options, std::size_t out_bytes) {
  const std::size_t fit = options.queued_bytes_max / std::max<std::size_t>(out_bytes, 1);
  const auto asked = static_cast<std::size_t>(std::max(options.replays_queued, 1));
  return static_cast<int>(std::max<std::size_t>(std::min(asked, fit), 1));
}

CaseResult run_case(Session& session, const Case& c) { return CaseRun(session, c).run(); }

}  // namespace slimgemm::judge
