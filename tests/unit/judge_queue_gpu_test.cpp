// SPDX-License-Identifier: Apache-2.0
// Batches of replays on a GPU: every replay has its own x and its own poison, every result is kept,
// and a run in which replays are queued is checked like any other.
#include "judge/executor.hpp"
#include "judge/report.hpp"
#include "judge/run.hpp"

#include <slimgemm/error.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace slimgemm::judge {
namespace {

class QueueOnGpu : public ::testing::Test {
 protected:
  using Bytes = std::vector<unsigned char>;

  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no usable GPU";
    executor_ = make_cuda_executor(0);
  }

  std::unique_ptr<Buffer> filled(std::size_t bytes, unsigned char value) {
    auto buffer = executor_->allocate(bytes);
    executor_->upload(*buffer, Bytes(bytes, value).data(), bytes);
    return buffer;
  }

  Bytes content(const Buffer& buffer) {
    Bytes bytes(buffer.size_bytes());
    executor_->download(bytes.data(), buffer, 0, bytes.size());
    return bytes;
  }

  std::unique_ptr<Executor> executor_;
};

TEST_F(QueueOnGpu, KeepsTheResultOfEveryReplay) {
  constexpr std::size_t x_bytes = 1 << 16;
  constexpr std::size_t replays = 100;
  const auto x = executor_->allocate(x_bytes);
  const auto out = executor_->allocate(2 * x_bytes);
  const auto recorded = executor_->record([&](void* stream) {
    static_cast<void>(cudaMemcpyAsync(out->data(), x->data(), x_bytes, cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream)));
  });
  std::vector<std::unique_ptr<Buffer>> sources;
  std::vector<std::unique_ptr<Buffer>> copies;
  std::vector<Replay> batch;
  for (std::size_t i = 0; i < replays; ++i) {
    sources.push_back(filled(x_bytes, static_cast<unsigned char>(i + 1)));
    copies.push_back(filled(2 * x_bytes, 0));
    const Preparation preparation{sources[i].get(), x.get(), x_bytes, out.get()};
    batch.push_back({recorded.get(), preparation, i + 1 < replays ? copies[i].get() : nullptr});
  }
  const std::vector<double> times_us = executor_->replay_batch_us(batch);
  ASSERT_EQ(times_us.size(), replays);
  for (std::size_t i = 0; i < replays; ++i) {
    Bytes expected(2 * x_bytes, poison_byte);
    std::fill_n(expected.begin(), x_bytes, static_cast<unsigned char>(i + 1));
    EXPECT_EQ(content(i + 1 < replays ? *copies[i] : *out), expected) << "replay " << i;
    EXPECT_GT(times_us[i], 0.5);
    EXPECT_LT(times_us[i], 1000);
  }
}

TEST_F(QueueOnGpu, RefusesACopyThatIsTooSmall) {
  const auto out = executor_->allocate(64);
  const auto copy = executor_->allocate(63);
  const auto recorded = executor_->record([&](void* stream) {
    static_cast<void>(cudaMemsetAsync(out->data(), 1, 64, static_cast<cudaStream_t>(stream)));
  });
  const Replay replay{recorded.get(), {nullptr, nullptr, 0, out.get()}, copy.get()};
  EXPECT_THROW(executor_->replay_batch_us({&replay, 1}), Error);
}

TEST_F(QueueOnGpu, MeasuresTheEmptyReplayInBothManners) {
  for (const int queued : {1, 101}) {
    const double empty_us = executor_->empty_replay_us({101, queued});
    EXPECT_GT(empty_us, 1) << queued;
    EXPECT_LT(empty_us, 20) << queued;
  }
}

TEST_F(QueueOnGpu, ARunIsSoundInBothManners) {
  RunOptions options;
  options.problem = {"small.json",
                     {{Layer{0}, "wide", 6144, 2048, DType::bf16, "", 6144, 0},
                      {Layer{1}, "scores", 256, 4096, DType::f32, "", 256, 0}},
                     {{Layer{0}, 1, true}, {Layer{0}, 33, true}, {Layer{1}, 16, true}}};
  options.repeats = 30;
  options.warmup_replays = 3;
  const MakeContestants make = [](const Problem& problem) {
    Contestants who;
    who.contender = make_slimgemm_contender(0, 0, problem.layers);
    who.baselines.push_back(make_slimgemm_contender(0, 0, problem.layers));
    return who;
  };
  for (const int queued : {1, 7, 1000}) {
    options.replays_queued = queued;
    const RunResult result = run_layer_by_layer(*executor_, make, options);
    EXPECT_EQ(verdict(result), Verdict::passed) << text_report(result, {});
    ASSERT_EQ(result.cases.size(), 3U);
    for (const CaseResult& c : result.cases) {
      EXPECT_EQ(c.contender.replays_checked, 33) << queued;
      EXPECT_EQ(c.contender.time->count, 30U);
      EXPECT_TRUE(c.contender.bit_identical) << c.shape.name << " m=" << c.shape.m;
      EXPECT_NEAR(c.against(0)->speedup->value, 1, 0.25) << "the same kernel on both sides";
    }
  }
}

}  // namespace
}  // namespace slimgemm::judge
