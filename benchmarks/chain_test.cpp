// SPDX-License-Identifier: Apache-2.0
// The chain benchmark on the CPU, on small layers: what feeds what, and that wrong results show.
#include "chain.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>
#endif

namespace slimgemm::bench {
namespace {

using judge::Layer;

constexpr std::size_t flush_bytes = 1 << 20;

// Where the results of small_layers() lie at m = 1: each begins at a multiple of 256 bytes.
constexpr std::size_t wide_bytes = 192 * 2;
constexpr std::size_t narrow_begin = 512;

std::vector<int> sources(const judge::LayerTable& layers, std::int64_t m) {
  std::vector<int> from;
  for (const Step& step : connect(layers, m)) from.push_back(step.x_from);
  return from;
}

/// wide feeds narrow, and narrow the router, but for its slice at m = 1.
judge::LayerTable small_layers() {
  return {{Layer{0}, "wide", 192, 64, DType::bf16, "", 192, 0},
          {Layer{1}, "narrow", 64, 192, DType::bf16, "", 16, 1},
          {Layer{2}, "router", 16, 64, DType::f32, "", 16, 0}};
}

ChainOptions small_options() {
  ChainOptions options;
  options.layers = small_layers();
  options.tokens = {1, 3};
  options.passes = 2;
  options.replays = 4;
  return options;
}

TEST(Connect, FeedsALayerByTheOneBeforeItWhereTheWidthFits) {
  const int fixed = Step::fixed_x;
  // qkv_gate, o, pooler, unpooler, router; at m <= 8 the unpooler's slice gives too few columns.
  EXPECT_EQ(sources(judge::layers(), 16), (std::vector<int>{fixed, fixed, 1, 2, 3}));
  EXPECT_EQ(sources(judge::layers(), 8), (std::vector<int>{fixed, fixed, 1, 2, fixed}));
  EXPECT_EQ(sources(small_layers(), 3), (std::vector<int>{fixed, 0, 1}));
}

TEST(Connect, GoesOnFromTheLastLayerToTheFirst) {
  judge::LayerTable layers = small_layers();
  layers.pop_back();
  EXPECT_EQ(sources(layers, 3), (std::vector<int>{1, 0}));
  EXPECT_EQ(sources(layers, 1), (std::vector<int>{Step::fixed_x, 0}));
}

TEST(Connect, DoesNotFeedALayerByItself) {
  const judge::LayerTable square = {{Layer{0}, "square", 64, 64, DType::bf16, "", 64, 0}};
  EXPECT_EQ(sources(square, 3), std::vector<int>{Step::fixed_x});
}

/// Notes its calls and leaves out as it is.
class NotingBaseline final : public judge::Contender {
 public:
  struct Call {
    int layer;
    const void* x;
    std::int64_t m;
    void* out;
  };
  explicit NotingBaseline(std::vector<Call>& calls) : calls_(calls) {}
  [[nodiscard]] std::string name() const override { return "noting"; }
  void prepare(const judge::WeightSet& weights) override { EXPECT_EQ(weights.size(), 6u); }
  void run(Layer layer, const void* x, std::int64_t m, void* out, void*) override {
    calls_.push_back({static_cast<int>(layer), x, m, out});
  }
  [[nodiscard]] std::int64_t weight_bytes(Layer, std::int64_t) const override { return 1; }

 private:
  std::vector<Call>& calls_;
};

TEST(Chain, RunsEveryPassOnItsOwnWeightsAndOnWhatTheLayerBeforeGave) {
  std::vector<NotingBaseline::Call> calls;
  const auto executor = judge::make_cpu_executor(1, flush_bytes);
  const ChainReport report =
      run_chains(*executor, small_options(), [&](const judge::Problem& problem) {
        EXPECT_EQ(problem.layers.size(), 6u);
        EXPECT_EQ(problem.cases.size(), 12u);
        return std::make_unique<NotingBaseline>(calls);
      });
  EXPECT_EQ(report.baseline, "noting");
  ASSERT_EQ(report.results.size(), 2u);
  const ChainResult& result = report.results[1];
  EXPECT_EQ(result.m, 3);
  EXPECT_EQ(result.plain.count, 4u);
  EXPECT_EQ(result.programmatic.count, 4u);
  EXPECT_EQ(result.single.size(), 3u);
  EXPECT_EQ(result.baseline.value().count, 4u);
  EXPECT_TRUE(report.passed()) << chain_text(report);

  ASSERT_GE(calls.size(), 6u);
  const std::span<NotingBaseline::Call> last = std::span(calls).last(6);  // m = 3
  for (int i = 0; i < 6; ++i) {
    const auto& call = last[static_cast<std::size_t>(i)];
    EXPECT_EQ(call.layer, i);
    EXPECT_EQ(call.m, 3);
    if (i % 3 > 0) {
      EXPECT_EQ(call.x, last[static_cast<std::size_t>(i - 1)].out) << i;
    }
  }
  EXPECT_EQ(last[0].x, last[3].x);  // fixed
  EXPECT_NE(last[0].x, last[2].out);
}

/// The CPU, but one download, counted from 0, is tampered with.
class TamperingExecutor final : public judge::Executor {
 public:
  TamperingExecutor(int download, std::function<void(unsigned char* bytes)> tamper)
      : inner_(judge::make_cpu_executor(1, flush_bytes)),
        download_(download),
        tamper_(std::move(tamper)) {}

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> describe() const override {
    return inner_->describe();
  }
  [[nodiscard]] bool is_cuda() const override { return false; }
  [[nodiscard]] int cuda_device() const override { return -1; }
  std::unique_ptr<judge::Buffer> allocate(std::size_t bytes) override {
    return inner_->allocate(bytes);
  }
  void upload(judge::Buffer& to, const void* from, std::size_t bytes) override {
    inner_->upload(to, from, bytes);
  }
  void download(void* to, const judge::Buffer& from, std::size_t offset,
                std::size_t bytes) override {
    inner_->download(to, from, offset, bytes);
    if (downloads_++ == download_) tamper_(static_cast<unsigned char*>(to));
  }
  std::unique_ptr<judge::Recorded> record(const std::function<void(void*)>& call) override {
    return inner_->record(call);
  }
  std::vector<double> replay_batch_us(std::span<const judge::Replay> batch) override {
    return inner_->replay_batch_us(batch);
  }
  double empty_replay_us(judge::Repeats repeats) override {
    return inner_->empty_replay_us(repeats);
  }
  double streaming_read_us(std::size_t bytes, judge::Repeats repeats) override {
    return inner_->streaming_read_us(bytes, repeats);
  }
  std::vector<double> reference(const judge::Buffer& x, const judge::Buffer& w, DType w_dtype,
                                std::int64_t m, std::int64_t n, std::int64_t k) override {
    return inner_->reference(x, w, w_dtype, m, n, k);
  }

 private:
  std::unique_ptr<judge::Executor> inner_;
  int download_;
  std::function<void(unsigned char* bytes)> tamper_;
  int downloads_ = 0;
};

TEST(Chain, NamesALayerWhoseResultIsNotTheSameInEveryReplay) {
  ChainOptions options = small_options();
  options.tokens = {1};
  // The first replay is of the chain without programmatic launches, the second of the one with.
  TamperingExecutor executor(1, [](unsigned char* outs) { outs[narrow_begin + 31] ^= 1; });
  const ChainReport report = run_chains(executor, options, {});
  EXPECT_FALSE(report.passed());
  ASSERT_EQ(report.results[0].failures.size(), 1u);
  EXPECT_EQ(report.results[0].failures[0],
            "m=1: slimgemm, programmatic launches: out of narrow is not what the first chain gave");
  EXPECT_NE(chain_text(report).find("WRONG: m=1: slimgemm, programmatic launches"),
            std::string::npos);
}

TEST(Chain, DoesNotCompareWhatNoLayerWrites) {
  ChainOptions options = small_options();
  options.tokens = {1};
  TamperingExecutor executor(1, [](unsigned char* outs) { outs[wide_bytes] ^= 1; });
  EXPECT_TRUE(run_chains(executor, options, {}).passed());
}

TEST(Chain, NamesALayerThatIsNotWritten) {
  ChainOptions options = small_options();
  options.tokens = {1};
  TamperingExecutor executor(0, [](unsigned char* outs) {
    outs[narrow_begin + 6] = outs[narrow_begin + 7] = judge::poison_byte;
  });
  const ChainReport report = run_chains(executor, options, {});
  ASSERT_FALSE(report.passed());
  EXPECT_EQ(report.results[0].failures[0],
            "m=1: slimgemm: out of narrow has a NaN, or an element that was not written");
}

#if SLIMGEMM_HAVE_JSON
TEST(Chain, WritesJson) {
  const auto executor = judge::make_cpu_executor(1, flush_bytes);
  const ChainReport report = run_chains(*executor, small_options(), {});
  const auto json =
      nlohmann::json::parse(chain_json(report, {"chain_benchmark", "today", {{"device", "CPU"}}}));
  EXPECT_EQ(json["schema"], "slimgemm-chain-1");
  EXPECT_EQ(json["device"]["device"], "CPU");
  EXPECT_EQ(json["passes"], 2);
  ASSERT_EQ(json["results"].size(), 2u);
  const auto& result = json["results"][1];
  EXPECT_EQ(result["m"], 3);
  EXPECT_TRUE(result["layers"][0]["x_from"].is_null());
  EXPECT_EQ(result["layers"][1]["x_from"], "wide");
  EXPECT_EQ(result["plain"]["replays"], 4);
  EXPECT_GT(result["gain"]["value"], 0);
  EXPECT_TRUE(result["baseline"].is_null());
  EXPECT_TRUE(result["failures"].empty());
}
#endif

}  // namespace
}  // namespace slimgemm::bench
