// SPDX-License-Identifier: Apache-2.0
// The CUDA side of the judge: timing, recording, references and the cuBLAS baselines.
#include "judge/contender.hpp"
#include "judge/cuda_kernels.hpp"
#include "judge/executor.hpp"

#include <slimgemm/error.hpp>

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace slimgemm::judge {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return AssertionSuccess();
  return AssertionFailure() << "\"" << text << "\" does not contain \"" << part << "\"";
}

/// The message of the Error that `action` throws; "" if it throws none.
std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class JudgeOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no usable GPU";
    executor_ = make_cuda_executor(0);
  }

  [[nodiscard]] std::string fact(const std::string& key) const {
    for (const auto& [name, value] : executor_->describe()) {
      if (name == key) return value;
    }
    return "";
  }

  [[nodiscard]] bool on_h200() const { return fact("device").find("H200") != std::string::npos; }

  template <class T>
  std::unique_ptr<Buffer> upload(const std::vector<T>& values) {
    auto buffer = executor_->allocate(values.size() * sizeof(T));
    executor_->upload(*buffer, values.data(), buffer->size_bytes());
    return buffer;
  }

  std::vector<unsigned char> download(const Buffer& buffer) {
    std::vector<unsigned char> bytes(buffer.size_bytes());
    executor_->download(bytes.data(), buffer, 0, bytes.size());
    return bytes;
  }

  /// A call that sets a byte of `buffer`, after `first`.
  static std::function<void(void*)> after(Buffer& buffer, std::function<void(cudaStream_t)> first) {
    return [&buffer, first = std::move(first)](void* stream) {
      first(static_cast<cudaStream_t>(stream));
      static_cast<void>(cudaMemsetAsync(buffer.data(), 1, 1, static_cast<cudaStream_t>(stream)));
    };
  }

  std::unique_ptr<Executor> executor_;
};

TEST(JudgeWithoutGpu, SaysWhatIsMissing) {
  if (cuda_device_count() != 0) GTEST_SKIP() << "this machine has a GPU";
  try {
    make_cuda_executor(0);
    FAIL() << "an executor without a GPU";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_TRUE(contains(error.what(), "--device cpu"));
  }
}

TEST_F(JudgeOnGpu, RefusesADeviceThatIsNotThere) {
  EXPECT_TRUE(contains(error_of([] { make_cuda_executor(1000); }), "1000"));
  EXPECT_TRUE(contains(error_of([] { make_cuda_executor(-1); }), "-1"));
}

TEST_F(JudgeOnGpu, DescribesTheMachine) {
  EXPECT_FALSE(fact("device").empty());
  EXPECT_EQ(fact("compute_capability"), "9.0");
  EXPECT_GT(std::stoll(fact("sm_count")), 0);
  EXPECT_GE(std::stoll(fact("flush_bytes")), 4 * std::stoll(fact("l2_bytes")));
  EXPECT_FALSE(fact("driver").empty());
  EXPECT_FALSE(fact("cublas").empty());
}

TEST_F(JudgeOnGpu, EmptyReplayTakesMicroseconds) {
  const double empty_us = executor_->empty_replay_us({51});
  EXPECT_GT(empty_us, 1);
  EXPECT_LT(empty_us, 20);
}

TEST_F(JudgeOnGpu, StreamingReadIsColdAndFast) {
  if (!on_h200()) GTEST_SKIP() << "the bounds are those of an H200";
  constexpr double datasheet_bytes_per_us = 4.8e6;
  for (const std::size_t bytes : {std::size_t{8'388'608}, std::size_t{50'331'648}}) {
    const double time_us = executor_->streaming_read_us(bytes, {31});
    EXPECT_GT(time_us, static_cast<double>(bytes) / datasheet_bytes_per_us) << bytes;
    EXPECT_LT(time_us, static_cast<double>(bytes) / 1e6) << bytes;
    EXPECT_EQ(executor_->streaming_read_us(bytes, {31}), time_us) << "not remembered";
  }
}

TEST_F(JudgeOnGpu, StreamingReadTakesAnySize) {
  for (const std::size_t bytes : {0, 1, 16, 4'098, 1'000'001}) {
    EXPECT_GE(executor_->streaming_read_us(bytes, {3}), 0) << bytes;
  }
}

template <class W>
void check_reference(Executor& executor, const std::vector<std::uint16_t>& x,
                     const std::vector<W>& w, DType dtype, std::int64_t m, std::int64_t n,
                     std::int64_t k) {
  const auto as_double = [](W value) -> double {
    if constexpr (std::is_same_v<W, float>) {
      return value;
    } else {
      return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
    }
  };
  auto x_buffer = executor.allocate(x.size() * 2);
  executor.upload(*x_buffer, x.data(), x.size() * 2);
  auto w_buffer = executor.allocate(w.size() * sizeof(W));
  executor.upload(*w_buffer, w.data(), w.size() * sizeof(W));
  const std::vector<double> result = executor.reference(*x_buffer, *w_buffer, dtype, m, n, k);
  ASSERT_EQ(result.size(), static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t c = 0; c < k; ++c) {
        const std::uint16_t bits = x[static_cast<std::size_t>(i * k + c)];
        sum += static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16)) *
               as_double(w[static_cast<std::size_t>(j * k + c)]);
      }
      ASSERT_NEAR(result[static_cast<std::size_t>(i * n + j)], sum, 1e-12 * static_cast<double>(k))
          << "row " << i << ", column " << j;
    }
  }
}

TEST_F(JudgeOnGpu, ReferenceIsThatOfAHostLoop) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(-1, 1);
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size& s : {Size{1, 1, 1}, Size{3, 70, 130}, Size{65, 64, 16}, Size{130, 129, 257}}) {
    std::vector<std::uint16_t> x(static_cast<std::size_t>(s.m * s.k));
    std::vector<std::uint16_t> w_bf16(static_cast<std::size_t>(s.n * s.k));
    std::vector<float> w_f32(w_bf16.size());
    const auto draw = [&] {
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(uniform(random)) >> 16);
    };
    for (auto& value : x) value = draw();
    for (auto& value : w_bf16) value = draw();
    for (auto& value : w_f32) value = uniform(random);
    check_reference(*executor_, x, w_bf16, DType::bf16, s.m, s.n, s.k);
    check_reference(*executor_, x, w_f32, DType::f32, s.m, s.n, s.k);
  }
}

TEST_F(JudgeOnGpu, ReplayCopiesXAndPoisonsOutFirst) {
  constexpr std::size_t bytes = 1024;
  auto x = executor_->allocate(bytes);
  auto out = executor_->allocate(2 * bytes);
  const auto recorded = executor_->record([&](void* stream) {
    static_cast<void>(cudaMemcpyAsync(out->data(), x->data(), bytes, cudaMemcpyDeviceToDevice,
                                      static_cast<cudaStream_t>(stream)));
  });
  for (const unsigned char value : {3, 7}) {
    const auto source = upload(std::vector<unsigned char>(bytes, value));
    Preparation preparation;
    preparation.x_source = source.get();
    preparation.x = x.get();
    preparation.x_bytes = bytes;
    preparation.out = out.get();
    EXPECT_GT(executor_->replay_us(*recorded, preparation), 0);
    const auto result = download(*out);
    EXPECT_EQ(result, [&] {
      std::vector<unsigned char> expected(2 * bytes, poison_byte);
      std::fill_n(expected.begin(), bytes, value);
      return expected;
    }());
  }
}

TEST_F(JudgeOnGpu, NamesWhatBreaksACapture) {
  auto buffer = executor_->allocate(256);
  std::vector<void*> allocated;
  const auto record = [&](std::function<void(cudaStream_t)> first) {
    return error_of([&] { executor_->record(after(*buffer, std::move(first))); });
  };
  EXPECT_EQ(record([](cudaStream_t) {}), "");
  EXPECT_TRUE(contains(
      record([](cudaStream_t stream) { static_cast<void>(cudaStreamSynchronize(stream)); }),
      "host synchronisation"));
  EXPECT_TRUE(contains(record([](cudaStream_t) { static_cast<void>(cudaDeviceSynchronize()); }),
                       "host synchronisation"));
  EXPECT_TRUE(contains(record([&](cudaStream_t) {
                         void* pointer = nullptr;
                         static_cast<void>(cudaMalloc(&pointer, 64));
                         if (pointer != nullptr) allocated.push_back(pointer);
                       }),
                       "allocation"));
  EXPECT_TRUE(contains(record([](cudaStream_t stream) {
                         void* pointer = nullptr;
                         static_cast<void>(cudaMallocAsync(&pointer, 64, stream));
                         static_cast<void>(cudaFreeAsync(pointer, stream));
                       }),
                       "allocation"));
  EXPECT_TRUE(contains(record([&](cudaStream_t) {
                         static_cast<void>(cudaMemsetAsync(buffer->data(), 2, 1, nullptr));
                       }),
                       "legacy default stream"));
  EXPECT_TRUE(contains(error_of([&] { executor_->record([](void*) {}); }), "nothing was launched"));
  EXPECT_EQ(record([](cudaStream_t) {}), "") << "a failed capture left something behind";
  for (void* pointer : allocated) EXPECT_EQ(cudaFree(pointer), cudaSuccess);
}

TEST_F(JudgeOnGpu, PassesOnWhatTheCallThrows) {
  const auto call = [](void*) { throw Error(ErrorCode::invalid_argument, "m = 3 is refused"); };
  EXPECT_EQ(error_of([&] { executor_->record(call); }), "m = 3 is refused");
}

TEST_F(JudgeOnGpu, RefusesABufferThatIsTooSmall) {
  auto buffer = executor_->allocate(16);
  const std::vector<char> bytes(32);
  EXPECT_TRUE(contains(error_of([&] { executor_->upload(*buffer, bytes.data(), 32); }), "32"));
  EXPECT_TRUE(contains(error_of([&] { executor_->allocate(std::size_t{1} << 50); }),
                       "1125899906842624 bytes"));
}

/// The five weight matrices at their real sizes, filled on the device.
class BlasOnGpu : public JudgeOnGpu {
 protected:
  static constexpr std::size_t guard_bytes = 4096;

  void make_weights() {
    for (const LayerInfo& layer : layers()) {
      const auto index = static_cast<std::size_t>(layer.layer);
      const std::int64_t count = layer.n * layer.k;
      buffers_[index] =
          executor_->allocate(static_cast<std::size_t>(count * size_bytes(layer.dtype)));
      void* data = buffers_[index]->data();
      if (layer.dtype == DType::bf16) {
        launch_fill_bf16(data, count, 3 + static_cast<std::uint32_t>(index), nullptr);
      } else {
        const auto rounded = executor_->allocate(static_cast<std::size_t>(count * 2));
        launch_fill_bf16(rounded->data(), count, 3, nullptr);
        launch_cast_to_f32(rounded->data(), static_cast<float*>(data), count, nullptr);
        ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
      }
      weights_[index] = {layer.n, layer.k, layer.dtype, nullptr, data};
    }
    ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }

  /// Runs a shape by replay and compares it with the FP64 reference.
  void check(Contender& contender, Layer layer, std::int64_t m) {
    SCOPED_TRACE(contender.name() + ", " + std::string(info(layer).name) +
                 ", m = " + std::to_string(m));
    const Case c{layer, m, false};
    const auto results = static_cast<std::size_t>(m * c.n());
    const std::size_t out_bytes = results * static_cast<std::size_t>(size_bytes(c.dtype()));
    auto x = executor_->allocate(static_cast<std::size_t>(m * c.k() * 2));
    auto out = executor_->allocate(out_bytes + guard_bytes);
    launch_fill_bf16(x->data(), m * c.k(), 11, nullptr);
    const auto recorded = executor_->record(
        [&](void* stream) { contender.run(layer, x->data(), m, out->data(), stream); });
    Preparation preparation;
    preparation.out = out.get();
    EXPECT_GT(executor_->replay_us(*recorded, preparation), 0);
    const auto bytes = download(*out);
    for (std::size_t i = out_bytes; i < bytes.size(); ++i) ASSERT_EQ(bytes[i], poison_byte);
    const auto reference = executor_->reference(*x, *buffers_[static_cast<std::size_t>(layer)],
                                                c.dtype(), m, c.n(), c.k());
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < results; ++i) {
      const double error = value_at(bytes, i, c.dtype()) - reference[i];
      difference += error * error;
      norm += reference[i] * reference[i];
    }
    EXPECT_LE(std::sqrt(difference / norm), c.dtype() == DType::bf16 ? 0.01 : 1e-5);
    EXPECT_EQ(contender.weight_bytes(layer, m), c.n() * c.k() * size_bytes(c.dtype()));
    EXPECT_FALSE(contender.describe(layer, m).empty());
  }

  static double value_at(const std::vector<unsigned char>& bytes, std::size_t i, DType dtype) {
    std::uint32_t word = 0;
    if (dtype == DType::f32) {
      std::memcpy(&word, bytes.data() + 4 * i, 4);
    } else {
      std::memcpy(reinterpret_cast<char*>(&word) + 2, bytes.data() + 2 * i, 2);
    }
    return std::bit_cast<float>(word);
  }

  std::array<std::unique_ptr<Buffer>, layer_count> buffers_;
  WeightSet weights_ = WeightSet(layer_count);
};

TEST_F(BlasOnGpu, BaselinesAgreeWithTheReference) {
  make_weights();
  for (const auto make : {make_sglang_baseline, make_best_blas_baseline}) {
    std::unique_ptr<Contender> baseline;
    try {
      baseline = make(0, fixed_problem());
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
      GTEST_SKIP() << error.what();
    }
    baseline->prepare(weights_);
    for (const Case& c : all_cases()) {
      if (c.m <= 33) check(*baseline, c.layer, c.m);
    }
  }
}

TEST_F(BlasOnGpu, BaselinesNameWhatTheyDoNotServe) {
  std::unique_ptr<Contender> baseline;
  try {
    baseline = make_best_blas_baseline(0);
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::unsupported) << error.what();
    GTEST_SKIP() << error.what();
  }
  EXPECT_TRUE(
      contains(error_of([&] { baseline->run(Layer::o, nullptr, 3, nullptr, nullptr); }), "m = 3"));
  EXPECT_TRUE(contains(error_of([&] { baseline->prepare(weights_); }), "qkv_gate"));
}

}  // namespace
}  // namespace slimgemm::judge
