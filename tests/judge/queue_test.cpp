// SPDX-License-Identifier: Apache-2.0
// Replays that are enqueued several at a time are checked like those that are waited for one by
// one.
#include "judge/case_run.hpp"
#include "judge/report.hpp"
#include "tiny_problem.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>

namespace slimgemm::judge::test {
namespace {

// The CPU's executor, and what the judge asked of it. Like a GPU it says nothing of a replay before
// the batch is over, and it wipes the copies before a batch, so that none can be taken for new.
class WatchedExecutor final : public Executor {
 public:
  struct Seen {
    const void* out;
    const void* x_source;
    bool operator==(const Seen&) const = default;
  };
  std::vector<std::size_t> batches;  // their sizes
  std::vector<Seen> replays;
  std::size_t copy_bytes_max = 0;  // what the copies of a batch took
  std::vector<Repeats> empty;
  std::vector<Repeats> streams;
  std::function<void(std::span<const Replay>)> before_batch;

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> describe() const override {
    return cpu_->describe();
  }
  [[nodiscard]] bool is_cuda() const override { return false; }
  [[nodiscard]] int cuda_device() const override { return -1; }
  std::unique_ptr<Buffer> allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void upload(Buffer& to, const void* from, std::size_t bytes) override {
    cpu_->upload(to, from, bytes);
  }
  void download(void* to, const Buffer& from, std::size_t offset, std::size_t bytes) override {
    cpu_->download(to, from, offset, bytes);
  }
  std::unique_ptr<Recorded> record(const std::function<void(void*)>& call) override {
    return cpu_->record(call);
  }
  std::vector<double> replay_batch_us(std::span<const Replay> batch) override {
    batches.push_back(batch.size());
    std::size_t copy_bytes = 0;
    for (const Replay& replay : batch) {
      replays.push_back({replay.preparation.out->data(), replay.preparation.x_source->data()});
      if (replay.out_copy == nullptr) continue;
      std::memset(replay.out_copy->data(), 0, replay.out_copy->size_bytes());
      copy_bytes += replay.out_copy->size_bytes();
    }
    copy_bytes_max = std::max(copy_bytes_max, copy_bytes);
    if (before_batch) before_batch(batch);
    return cpu_->replay_batch_us(batch);
  }
  double empty_replay_us(Repeats repeats) override {
    empty.push_back(repeats);
    return cpu_->empty_replay_us(repeats);
  }
  double streaming_read_us(std::size_t bytes, Repeats repeats) override {
    streams.push_back(repeats);
    return cpu_->streaming_read_us(bytes, repeats);
  }
  std::vector<double> reference(const Buffer& x, const Buffer& w, DType w_dtype, std::int64_t m,
                                std::int64_t n, std::int64_t k) override {
    return cpu_->reference(x, w, w_dtype, m, n, k);
  }

 private:
  std::unique_ptr<Executor> cpu_ = tiny_executor();
};

RunOptions queue_options(int replays_queued) {
  RunOptions options = tiny_options();
  options.problem.cases = {{Layer::qkv_gate, 1, true},
                           {Layer::o, 16, true},
                           {Layer::unpooler, 9, false},
                           {Layer::router, 32, true}};
  options.warmup_replays = 1;
  options.replays_queued = replays_queued;
  return options;
}

RunResult judge(Executor& executor, Contender& contender, const std::vector<Contender*>& baselines,
                const RunOptions& options) {
  return run_judge(executor, contender, baselines, generate_weights(options.problem.layers, 3),
                   options);
}

TEST(Queue, BatchesAreAsLargeAsAskedFor) {
  DenseContender contender;
  DenseContender baseline;
  WatchedExecutor executor;
  RunOptions options = queue_options(6);
  options.problem.cases = {{Layer::o, 16, true}, {Layer::unpooler, 9, false}};
  const RunResult result = judge(executor, contender, {&baseline}, options);
  EXPECT_EQ(verdict(result), Verdict::passed);
  // One warm-up pair; eight pairs; a warm-up of the extra shape and its four replays.
  EXPECT_EQ(executor.batches, (std::vector<std::size_t>{2, 6, 6, 4, 1, 4}));
  EXPECT_EQ(result.replays_queued, 6);
  EXPECT_EQ(result.cases[0].replays_queued, 6);
}

TEST(Queue, OneAtATimeKeepsNoCopies) {
  DenseContender contender;
  DenseContender baseline;
  WatchedExecutor executor;
  const RunResult result = judge(executor, contender, {&baseline}, queue_options(1));
  EXPECT_EQ(std::set<std::size_t>(executor.batches.begin(), executor.batches.end()),
            std::set<std::size_t>{1});
  EXPECT_EQ(executor.copy_bytes_max, 0U);
  EXPECT_EQ(result.replays_queued, 1);
}

// Who runs on which input, by the order of their first appearance.
std::vector<std::pair<std::size_t, std::size_t>> order_of(const WatchedExecutor& executor) {
  std::vector<const void*> outs;
  std::vector<const void*> inputs;
  const auto number = [](std::vector<const void*>& known, const void* one) {
    const auto at = std::find(known.begin(), known.end(), one);
    if (at == known.end()) known.push_back(one);
    return static_cast<std::size_t>(std::find(known.begin(), known.end(), one) - known.begin());
  };
  std::vector<std::pair<std::size_t, std::size_t>> order;
  for (const auto& seen : executor.replays) {
    order.emplace_back(number(outs, seen.out), number(inputs, seen.x_source));
  }
  return order;
}

TEST(Queue, SidesTakeTurnsAndEveryReplayIsCheckedAsBefore) {
  RunOptions options = queue_options(1);
  options.problem.cases = {{Layer::router, 32, true}};  // so that no memory is used again
  DenseContender contender;
  DenseContender first;
  DenseContender second;
  WatchedExecutor alone;
  const RunResult expected = judge(alone, contender, {&first, &second}, options);
  for (const int queued : {2, 5, 12, 1000}) {
    options.replays_queued = queued;
    WatchedExecutor executor;
    const RunResult result = judge(executor, contender, {&first, &second}, options);
    EXPECT_EQ(order_of(executor), order_of(alone)) << queued;
    EXPECT_EQ(verdict(result), Verdict::passed) << queued;
    const SideResult& side = result.cases[0].contender;
    const SideResult& before = expected.cases[0].contender;
    EXPECT_EQ(side.replays_checked, before.replays_checked) << queued;
    EXPECT_EQ(side.inputs_checked, before.inputs_checked) << queued;
    EXPECT_EQ(side.errors.l2, before.errors.l2) << queued;
    EXPECT_TRUE(side.bit_identical) << queued;
    EXPECT_EQ(side.time->count, before.time->count) << queued;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(result.cases[0].against(i)->side.replays_checked, before.replays_checked);
      EXPECT_TRUE(result.cases[0].against(i)->speedup.has_value());
    }
  }
}

// Lets one call of a shape do something else.
class OddCall : public DenseContender {
 public:
  using DenseContender::store;
  using Flaw = std::function<void(const Shape& shape, void* out)>;
  OddCall(int call, Flaw flaw) : call_(call), flaw_(std::move(flaw)) {}
  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    const Shape shape = shape_of(layer, m);
    std::vector<std::byte> before(static_cast<std::size_t>(size_bytes(shape.dtype)));
    std::memcpy(before.data(), out, before.size());
    DenseContender::run(layer, x, m, out, stream);
    if (++calls_[{layer, m}] != call_) return;
    if (flaw_) {
      flaw_(shape, out);
    } else {
      std::memcpy(out, before.data(), before.size());  // as if not written
    }
  }

 private:
  int call_;
  Flaw flaw_;
  std::map<std::pair<Layer, std::int64_t>, int> calls_;
};

// Call 1 is the one before recording, 2 the warm-up; 3 to 10 are timed and lie in one batch. By the
// ninth every input has had its turn.
constexpr int call_in_the_middle = 9;

TEST(Queue, FindsAWrongOutputInTheMiddleOfABatch) {
  OddCall contender(call_in_the_middle,
                    [](const Shape& shape, void* out) { OddCall::store(shape, out, 0, 0, 1e6F); });
  DenseContender baseline;
  WatchedExecutor executor;
  const RunResult result = judge(executor, contender, {&baseline}, queue_options(100));
  EXPECT_EQ(verdict(result), Verdict::failed);
  for (const CaseResult& c : result.cases) {
    ASSERT_EQ(c.contender.failures.empty(), !c.shape.scored) << c.shape.name;
    if (!c.shape.scored) continue;  // it ends before
    EXPECT_EQ(c.contender.failures[0].kind, FailureKind::l2_error) << c.shape.name;
    EXPECT_FALSE(c.contender.bit_identical) << "the same x gave right results before";
    EXPECT_TRUE(c.against(0)->side.failures.empty());
  }
}

TEST(Queue, FindsAnUnwrittenElementInTheMiddleOfABatch) {
  OddCall contender(call_in_the_middle, nullptr);
  WatchedExecutor executor;
  const RunResult result = judge(executor, contender, {}, queue_options(100));
  for (const CaseResult& c : result.cases) {
    ASSERT_EQ(c.contender.failures.empty(), !c.shape.scored) << c.shape.name;
    if (!c.shape.scored) continue;
    EXPECT_EQ(c.contender.failures[0].kind, FailureKind::unwritten) << "the poison was not renewed";
  }
}

TEST(Queue, FindsAWriteOutsideInTheMiddleOfABatch) {
  OddCall contender(call_in_the_middle,
                    [](const Shape&, void* out) { static_cast<unsigned char*>(out)[-1] = 0; });
  WatchedExecutor executor;
  const RunResult result = judge(executor, contender, {}, queue_options(100));
  const auto failures = result.contender_failures();
  ASSERT_EQ(failures.size(), 3U);
  for (const Failure& failure : failures) EXPECT_EQ(failure.kind, FailureKind::guard_zone);
}

TEST(Queue, TellsOfBitsThatDifferInTheMiddleOfABatch) {
  OddCall contender(call_in_the_middle, [](const Shape& shape, void* out) {
    if (shape.dtype == DType::f32) static_cast<float*>(out)[0] *= 1.00001F;
  });
  WatchedExecutor executor;
  const RunResult result = judge(executor, contender, {}, queue_options(100));
  EXPECT_EQ(verdict(result), Verdict::passed);
  for (const CaseResult& c : result.cases) {
    EXPECT_EQ(c.contender.bit_identical, c.shape.dtype == DType::bf16) << c.shape.name;
  }
}

TEST(Queue, KeepsWithinItsMemory) {
  DenseContender contender;
  DenseContender baseline;
  WatchedExecutor executor;
  RunOptions options = queue_options(100);
  const std::size_t out_bytes = guarded_bytes(resolve({Layer::router, 32, true}, tiny_layers()));
  options.queued_bytes_max = 3 * out_bytes;
  const RunResult result = judge(executor, contender, {&baseline}, options);
  EXPECT_EQ(verdict(result), Verdict::passed);
  EXPECT_LE(executor.copy_bytes_max, options.queued_bytes_max);
  EXPECT_GT(executor.copy_bytes_max, 0U);
  EXPECT_EQ(result.replays_queued, 100);
  EXPECT_EQ(result.cases[3].replays_queued, 3);
  EXPECT_GT(result.cases[0].replays_queued, 3);
  EXPECT_NE(text_report(result, {}).find("note: router m=32: replays queued: 3;"),
            std::string::npos);

  EXPECT_EQ(replays_queued(options, out_bytes), 3);
  EXPECT_EQ(replays_queued(options, 4 * out_bytes), 1) << "one needs no copy";
  EXPECT_EQ(replays_queued(options, 1), 100);
}

TEST(Queue, MeasuresEmptyReplayAndCeilingInTheSameManner) {
  DenseContender contender;
  for (const int queued : {1, 7}) {
    WatchedExecutor executor;
    const RunOptions options = queue_options(queued);
    judge(executor, contender, {}, options);
    ASSERT_EQ(executor.empty.size(), 1U);
    EXPECT_EQ(executor.empty[0].queued, queued);
    EXPECT_EQ(executor.empty[0].count, options.empty_repeats);
    ASSERT_EQ(executor.streams.size(), 3U);
    for (const Repeats& repeats : executor.streams) EXPECT_EQ(repeats.queued, queued);
  }
}

TEST(Queue, AFailedBatchNamesAllWhoAreInItAndHasNoTimes) {
  DenseContender contender;
  DenseContender baseline;
  for (const int queued : {1, 4}) {
    WatchedExecutor executor;
    int batches = 0;
    executor.before_batch = [&](std::span<const Replay>) {
      if (++batches == 5) throw Error(ErrorCode::device_error, "out of luck");
    };
    RunOptions options = queue_options(queued);
    options.warmup_replays = 0;
    options.problem.cases = {{Layer::o, 16, true}, {Layer::router, 32, true}};
    options.repeats = 12;
    const RunResult result = judge(executor, contender, {&baseline}, options);
    const SideResult& ours = result.cases[0].contender;
    const SideResult& theirs = result.cases[0].against(0)->side;
    ASSERT_EQ(ours.failures.size(), 1U);
    EXPECT_EQ(ours.failures[0].kind, FailureKind::call_failed);
    const bool ambiguous =
        ours.failures[0].to_string().find("without --queue-replays") != std::string::npos;
    EXPECT_EQ(ambiguous, queued > 1);
    EXPECT_EQ(theirs.failures.size(), queued > 1 ? 1U : 0U);
    // Four batches went well: four pairs in batches of two pairs each, two of a replay each.
    ASSERT_TRUE(ours.time && theirs.time);
    EXPECT_EQ(ours.time->count, queued == 1 ? 2 : 8);
    EXPECT_EQ(theirs.time->count, ours.time->count) << "pairs stay pairs";
    EXPECT_TRUE(result.cases[1].contender.failures.empty()) << "the run goes on";
  }
}

}  // namespace
}  // namespace slimgemm::judge::test
