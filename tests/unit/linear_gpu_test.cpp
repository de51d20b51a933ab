// SPDX-License-Identifier: Apache-2.0
// Every GPU kernel instance against an FP64 reference: random rows, probe rows, exceptions, odd
// shapes, poisoned outputs between guard zones, bit identity from run to run.
#include "cuda/cuda_backend.hpp"
#include "plan/kernel_plan.hpp"

#include <slimgemm/slimgemm.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

namespace slimgemm::plan {

// GoogleTest names a parameter by this.
void PrintTo(const Instance& instance, std::ostream* out) { *out << instance_name(instance); }

}  // namespace slimgemm::plan

namespace slimgemm::cuda {
namespace {

float to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/// A layer with weights of one encoding, dense values kept for the reference.
struct Layer {
  std::int64_t n;
  std::int64_t k;
  std::vector<double> w;
  PackedMatrix packed;
};

/// Normal weights; a share `exception_rate` of them is replaced by values outside the window.
Layer make_layer(Encoding encoding, std::int64_t n, std::int64_t k, double exception_rate,
                 unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const auto count = static_cast<std::size_t>(n * k);
  std::vector<double> dense(count);
  if (encoding == Encoding::raw32) {
    std::vector<float> w(count);
    for (std::size_t i = 0; i < count; ++i) dense[i] = w[i] = normal(random);
    return {n, k, std::move(dense), pack(std::span<const float>(w), n, k)};
  }
  const float outside[] = {0.0f, -0.0f, 3.0f, -17.0f, 1e-20f, -3e-39f, 9.1835e-41f, 1024.0f};
  std::vector<std::uint16_t> w(count);
  for (std::size_t i = 0; i < count; ++i) {
    w[i] = to_bf16(uniform(random) < exception_rate ? outside[random() % 8] : normal(random));
  }
  // With max_exception_rate 0 a single exception makes the matrix raw16.
  if (encoding == Encoding::raw16) w[count - 1] = 0;
  for (std::size_t i = 0; i < count; ++i) dense[i] = to_float(w[i]);
  const PackOptions options{.max_exception_rate = encoding == Encoding::split12 ? 1.0 : 0.0};
  return {n, k, std::move(dense), pack(std::span<const std::uint16_t>(w), n, k, options)};
}

constexpr std::size_t guard_bytes = 4096;
constexpr unsigned char guard_value = 0xA5;

/// Runs a call on poisoned, guarded memory and returns m x n results as doubles.
template <class Call>
std::vector<double> run_guarded(const Call& call, const std::vector<std::uint16_t>& x,
                                std::size_t x_offset, std::int64_t m, std::int64_t n, DType dtype) {
  const std::size_t out_bytes = static_cast<std::size_t>(m * n * size_bytes(dtype));
  const DeviceMemory x_memory((x.size() + x_offset) * 2 + 2);
  const DeviceMemory out_memory(out_bytes + 2 * guard_bytes);
  auto* const x_device = x_memory.as<std::uint16_t>() + x_offset;
  auto* const out_device = out_memory.as<unsigned char>();
  check(cudaMemcpy(x_device, x.data(), x.size() * 2, cudaMemcpyHostToDevice), "copy x");
  check(cudaMemset(out_device, guard_value, out_bytes + 2 * guard_bytes), "fill guards");
  check(cudaMemset(out_device + guard_bytes, 0xFF, out_bytes), "poison out");
  call(x_device, out_device + guard_bytes);
  check(cudaDeviceSynchronize(), "kernel");
  std::vector<unsigned char> host(out_bytes + 2 * guard_bytes);
  check(cudaMemcpy(host.data(), out_device, host.size(), cudaMemcpyDeviceToHost), "copy out");
  for (std::size_t i = 0; i < guard_bytes; ++i) {
    if (host[i] != guard_value || host[host.size() - 1 - i] != guard_value) {
      ADD_FAILURE() << "wrote outside of out, " << i << " bytes from the guard's outer end";
      break;
    }
  }
  std::vector<double> result(static_cast<std::size_t>(m * n));
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (dtype == DType::bf16) {
      std::uint16_t bits;
      std::memcpy(&bits, host.data() + guard_bytes + 2 * i, 2);
      result[i] = to_float(bits);
    } else {
      float value;
      std::memcpy(&value, host.data() + guard_bytes + 4 * i, 4);
      result[i] = value;
    }
  }
  return result;
}

/// x with row_stride >= k; every eighth row (from the first if m < 8) is a probe row, whose single
/// nonzero is 2^power at column probe_k.
struct Input {
  std::vector<std::uint16_t> x;
  std::vector<std::int64_t> probe_k;  // -1: a dense row
};
Input make_input(std::int64_t m, std::int64_t k, std::int64_t row_stride, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  // What lies between the rows must not matter: NaN.
  Input input{std::vector<std::uint16_t>(static_cast<std::size_t>(m * row_stride), 0x7FC0), {}};
  for (std::int64_t i = 0; i < m; ++i) {
    const bool probe = (i + seed) % 8 == 0;
    input.probe_k.push_back(probe ? static_cast<std::int64_t>(random() % k) : -1);
    for (std::int64_t j = 0; j < k; ++j) {
      const float value = probe ? (j == input.probe_k.back() ? 0.5f : 0.0f) : normal(random);
      input.x[static_cast<std::size_t>(i * row_stride + j)] = to_bf16(value);
    }
  }
  return input;
}

void expect_close(const Layer& layer, const Input& input, std::int64_t row_stride, std::int64_t m,
                  std::int64_t row_begin, std::int64_t row_end, const std::vector<double>& got,
                  const std::string& what) {
  const std::int64_t n = row_end - row_begin;
  const bool fp32 = layer.packed.dtype() == DType::f32;
  double error = 0;
  double norm = 0;
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      const double value = got[static_cast<std::size_t>(i * n + j)];
      const double* w = layer.w.data() + (row_begin + j) * layer.k;
      const std::int64_t probe = input.probe_k[static_cast<std::size_t>(i)];
      if (probe >= 0) {
        const double exact = 0.5 * w[probe];
        const double expected = fp32 ? exact : to_float(to_bf16(static_cast<float>(exact)));
        ASSERT_EQ(value, expected) << what << ": probe row " << i << " column " << j << " k "
                                   << probe << " weight " << w[probe];
        continue;
      }
      double sum = 0;
      for (std::int64_t c = 0; c < layer.k; ++c) {
        const double term = w[c] * to_float(input.x[static_cast<std::size_t>(i * row_stride + c)]);
        sum += term;
        norm += term * term;  // the expected square of the sum: terms have random signs
      }
      ASSERT_TRUE(std::isfinite(value)) << what << ": row " << i << " column " << j;
      error += (value - sum) * (value - sum);
    }
  }
  EXPECT_LE(std::sqrt(error), (fp32 ? 1e-6 : 4e-3) * std::sqrt(norm)) << what;
}

/// Every instance of both families, of every encoding.
std::vector<plan::Instance> all_instances() {
  std::vector<plan::Instance> all;
  for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    for (const plan::Instance& instance : plan::instances_of(e)) all.push_back(instance);
  }
  return all;
}

/// The properties of an instance that the cases depend on.
struct Facts {
  Encoding encoding;
  std::int64_t tokens;
  std::int64_t cluster;
  bool tile;
  bool any_x;  // serves x of any alignment
};
Facts facts_of(const plan::Instance& instance) {
  if (instance.family == plan::Family::tile) {
    const plan::TileConfig& c = instance.tile();
    return {c.encoding, c.tokens, c.cluster, true, false};
  }
  const plan::StreamConfig& c = instance.stream();
  return {c.encoding, plan::cta_tokens(c), c.cluster, false, c.x_access == plan::XAccess::any};
}

class KernelInstance : public testing::TestWithParam<plan::Instance> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }

  /// One call with the instance under test, twice; compares with the reference and with itself.
  static void run_case(const CudaBackend& backend, const Layer& layer, std::int64_t m,
                       std::int64_t row_begin, std::int64_t row_end, std::int64_t row_stride,
                       std::size_t x_offset) {
    const std::int64_t rows = row_end - row_begin;
    const bool aligned = row_stride % 8 == 0 && x_offset % 8 == 0;
    const plan::Problem problem = backend.problem(rows, m, aligned);
    if (!aligned && !facts_of(GetParam()).any_x) {
      EXPECT_THROW(plan::plan_instance(GetParam(), problem, backend.gpu()), Error);
      return;
    }
    const auto plan = plan::plan_instance(GetParam(), problem, backend.gpu());
    const Input input = make_input(m, layer.k, row_stride, static_cast<unsigned>(m % 8));
    const std::string what = plan::instance_name(plan.instance) + " n=" + std::to_string(rows) +
                             " k=" + std::to_string(layer.k) + " m=" + std::to_string(m);
    const auto call = [&](const std::uint16_t* x, void* out) {
      backend.run_with(plan, {.x = x,
                              .m = m,
                              .x_row_stride = row_stride,
                              .out = out,
                              .row_begin = row_begin,
                              .row_end = row_end});
    };
    const auto got = run_guarded(call, input.x, x_offset, m, rows, layer.packed.dtype());
    expect_close(layer, input, row_stride, m, row_begin, row_end, got, what);
    const auto again = run_guarded(call, input.x, x_offset, m, rows, layer.packed.dtype());
    EXPECT_EQ(0, std::memcmp(got.data(), again.data(), got.size() * sizeof(double)))
        << what << ": two runs differ";
  }
};

TEST_P(KernelInstance, ServesEveryTokenCountUpToATileAboveItsEdge) {
  const Facts facts = facts_of(GetParam());
  const Layer layer = make_layer(facts.encoding, 80, 64 * 9, 0.001, 1);
  const CudaBackend backend(layer.packed, {});
  for (std::int64_t m = 1; m <= facts.tokens + 9; ++m) {
    run_case(backend, layer, m, 0, layer.n, layer.k, 0);
  }
}

// Small enough for a run under compute-sanitizer's slower tools.
TEST_P(KernelInstance, ServesASmallShape) {
  const Facts facts = facts_of(GetParam());
  const std::int64_t k = 64 * (facts.cluster + 9);
  const Layer layer = make_layer(facts.encoding, 50, k, 0.005, 6);
  const CudaBackend backend(layer.packed, {});
  run_case(backend, layer, facts.tokens - 1, 0, layer.n, k, 0);
  run_case(backend, layer, 3, 0, layer.n, k + 1, 0);
}

// x comes from the call before it in the stream, weights do not.
TEST_P(KernelInstance, WaitsForXInADependentLaunch) {
  const Facts facts = facts_of(GetParam());
  const std::int64_t k = 64 * (facts.cluster + 9);
  const Layer layer = make_layer(facts.encoding, 200, k, 0.005, 7);
  const CudaBackend backend(layer.packed, {.programmatic_launch = true});
  run_case(backend, layer, facts.tokens - 1, 0, layer.n, k, 0);
  const CudaBackend plain(layer.packed, {});
  const std::int64_t m = facts.tokens;
  const auto plan =
      plan::plan_instance(GetParam(), backend.problem(layer.n, m, true), backend.gpu());
  const Input first = make_input(m, k, k, 0);
  const Input second = make_input(m, k, k, 1);
  const auto x_bytes = first.x.size() * 2;
  const auto out_bytes = static_cast<std::size_t>(m * layer.n * size_bytes(layer.packed.dtype()));
  const DeviceMemory sources[2] = {DeviceMemory(x_bytes), DeviceMemory(x_bytes)};
  check(cudaMemcpy(sources[0].as<void>(), first.x.data(), x_bytes, cudaMemcpyHostToDevice), "copy");
  check(cudaMemcpy(sources[1].as<void>(), second.x.data(), x_bytes, cudaMemcpyHostToDevice),
        "copy");
  const DeviceMemory x(x_bytes);
  const DeviceMemory expected(out_bytes);
  const DeviceMemory got(out_bytes);
  std::vector<unsigned char> expected_bytes(out_bytes);
  std::vector<unsigned char> got_bytes(out_bytes);
  const auto call = [&](const CudaBackend& by, const DeviceMemory& from, const DeviceMemory& out) {
    by.run_with(plan, {.x = from.as<std::uint16_t>(),
                       .m = m,
                       .x_row_stride = k,
                       .out = out.as<void>(),
                       .row_begin = 0,
                       .row_end = layer.n});
  };
  for (int round = 0; round < 50; ++round) {
    const DeviceMemory& source = sources[round % 2];
    call(plain, source, expected);
    call(backend, x, got);  // keeps the GPU busy with a launch that others may overtake
    check(cudaMemcpyAsync(x.as<void>(), source.as<void>(), x_bytes, cudaMemcpyDeviceToDevice),
          "copy of x");
    call(backend, x, got);
    call(backend, x, got);
    check(cudaMemcpy(expected_bytes.data(), expected.as<void>(), out_bytes, cudaMemcpyDeviceToHost),
          "copy of out");
    check(cudaMemcpy(got_bytes.data(), got.as<void>(), out_bytes, cudaMemcpyDeviceToHost),
          "copy of out");
    ASSERT_EQ(expected_bytes, got_bytes)
        << plan::instance_name(plan.instance) << " round " << round;
  }
}

TEST_P(KernelInstance, ServesShapesThatDivideNothing) {
  const Facts facts = facts_of(GetParam());
  const std::int64_t least_k = 64 * (facts.cluster - 1) + 1;
  std::vector<std::int64_t> ks = {least_k, least_k + 7, least_k + 62, least_k + 63, least_k + 1999};
  if (facts.tile) ks = {64 * facts.cluster, 64 * (facts.cluster + 1), 64 * 29};
  for (const std::int64_t n : {1, 15, 17, 33, 129}) {
    for (const std::int64_t k : ks) {
      const Layer layer = make_layer(facts.encoding, n, k, 0.01, static_cast<unsigned>(n + k));
      const CudaBackend backend(layer.packed, {});
      for (const std::int64_t m : {std::int64_t{1}, std::int64_t{3}, facts.tokens}) {
        run_case(backend, layer, m, 0, n, facts.any_x ? k : (k + 7) / 8 * 8, 0);
      }
    }
  }
}

TEST_P(KernelInstance, TakesAnyStrideAlignmentAndRowRange) {
  const Facts facts = facts_of(GetParam());
  const Layer layer = make_layer(facts.encoding, 100, 64 * 20, 0.002, 3);
  const CudaBackend backend(layer.packed, {});
  const std::int64_t m = facts.tokens - 1;
  run_case(backend, layer, m, 0, layer.n, layer.k + 8, 0);
  run_case(backend, layer, m, 0, layer.n, layer.k + 3, 0);
  run_case(backend, layer, m, 0, layer.n, layer.k, 1);
  run_case(backend, layer, m, 16, 48, layer.k, 0);
  run_case(backend, layer, m, 64, 99, layer.k, 0);
}

TEST_P(KernelInstance, TakesManyExceptions) {
  const Facts facts = facts_of(GetParam());
  if (facts.encoding != Encoding::split12) GTEST_SKIP() << "the encoding has no exceptions";
  for (const double rate : {0.0, 0.05, 0.4}) {
    const Layer layer = make_layer(facts.encoding, 70, 64 * 10, rate, 4);
    const CudaBackend backend(layer.packed, {});
    run_case(backend, layer, facts.tokens, 0, layer.n, layer.k, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Table, KernelInstance, testing::ValuesIn(all_instances()),
                         [](const testing::TestParamInfo<plan::Instance>& parameter) {
                           std::string name = plan::instance_name(parameter.param);
                           for (char& c : name) {
                             if (c == '/') c = '_';
                           }
                           return name;
                         });

class LinearGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }
};

// A probe for every weight: all 65,536 patterns come back as a dense product gives them.
TEST_F(LinearGpu, GivesBackEveryBitPattern) {
  const std::int64_t n = 1024;
  const std::int64_t k = 64;
  std::vector<std::uint16_t> w(65536);
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = static_cast<std::uint16_t>(i * 40503u);
  for (const double rate : {1.0, 0.0}) {  // split12 with exceptions, raw16
    const PackedMatrix packed =
        pack(std::span<const std::uint16_t>(w), n, k, {.max_exception_rate = rate});
    const Linear linear(packed, {.device = Device::cuda});
    std::vector<std::uint16_t> x(static_cast<std::size_t>(k * k), 0);  // x = identity
    for (std::int64_t i = 0; i < k; ++i) x[static_cast<std::size_t>(i * k + i)] = 0x3F80;
    const auto got =
        run_guarded([&](const std::uint16_t* x_device, void* out) { linear.run(x_device, k, out); },
                    x, 0, k, n, DType::bf16);
    int wrong = 0;
    for (std::int64_t j = 0; j < n && wrong < 10; ++j) {
      // A row with Inf or NaN gives NaN for every other probe (0 * Inf), as a dense product does.
      bool finite_row = true;
      for (std::int64_t c = 0; c < k; ++c) {
        finite_row = finite_row && (w[static_cast<std::size_t>(j * k + c)] & 0x7F80) != 0x7F80;
      }
      for (std::int64_t i = 0; i < k && finite_row; ++i) {
        const double expected = to_float(w[static_cast<std::size_t>(j * k + i)]);
        const double value = got[static_cast<std::size_t>(i * n + j)];
        if (value != expected) {
          ++wrong;
          ADD_FAILURE() << name(packed.encoding()) << " weight (" << j << ", " << i << ") is "
                        << expected << ", came back as " << value;
        }
      }
    }
  }
}

TEST_F(LinearGpu, InfAndNanWeightsActAsInADenseProduct) {
  const std::int64_t n = 16;
  const std::int64_t k = 128;
  std::vector<std::uint16_t> w(static_cast<std::size_t>(n * k), 0x3C00);
  w[static_cast<std::size_t>(1 * k + 5)] = 0x7F80;   // row 1: Inf
  w[static_cast<std::size_t>(2 * k + 70)] = 0xFF80;  // row 2: -Inf
  w[static_cast<std::size_t>(3 * k + 9)] = 0x7FA1;   // row 3: NaN
  const Linear linear(pack(std::span<const std::uint16_t>(w), n, k), {.device = Device::cuda});
  const std::vector<std::uint16_t> x(static_cast<std::size_t>(k), 0x3F80);
  const auto got =
      run_guarded([&](const std::uint16_t* x_device, void* out) { linear.run(x_device, 1, out); },
                  x, 0, 1, n, DType::bf16);
  EXPECT_EQ(got[0], 128 * to_float(0x3C00));
  EXPECT_EQ(got[1], INFINITY);
  EXPECT_EQ(got[2], -INFINITY);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(got[4], 128 * to_float(0x3C00));
}

TEST_F(LinearGpu, RunsInsideACapturedGraphAndOnTwoStreamsAtOnce) {
  const Layer layer = make_layer(Encoding::split12, 512, 1024, 0.001, 5);
  const Linear linear(layer.packed, {.device = Device::cuda});
  const std::int64_t m = 7;
  const Input input = make_input(m, layer.k, layer.k, 3);
  const DeviceMemory x(input.x.size() * 2);
  check(cudaMemcpy(x.as<void>(), input.x.data(), x.size_bytes(), cudaMemcpyHostToDevice), "copy x");
  const auto out_bytes = static_cast<std::size_t>(m * layer.n * 2);
  cudaStream_t streams[2];
  cudaGraphExec_t graphs[2];
  const DeviceMemory outs[2] = {DeviceMemory(out_bytes), DeviceMemory(out_bytes)};
  for (int s = 0; s < 2; ++s) {
    check(cudaStreamCreateWithFlags(&streams[s], cudaStreamNonBlocking), "stream");
    cudaGraph_t graph;
    check(cudaStreamBeginCapture(streams[s], cudaStreamCaptureModeGlobal), "begin capture");
    linear.run(x.as<std::uint16_t>(), m, outs[s].as<void>(), streams[s]);
    check(cudaStreamEndCapture(streams[s], &graph), "end capture");
    check(cudaGraphInstantiate(&graphs[s], graph, 0), "instantiate");
    check(cudaGraphDestroy(graph), "destroy graph");
  }
  for (int replay = 0; replay < 200; ++replay) {
    for (int s = 0; s < 2; ++s) check(cudaGraphLaunch(graphs[s], streams[s]), "launch");
  }
  check(cudaDeviceSynchronize(), "replays");
  std::vector<std::uint16_t> got[2];
  for (int s = 0; s < 2; ++s) {
    got[s].resize(out_bytes / 2);
    check(cudaMemcpy(got[s].data(), outs[s].as<void>(), out_bytes, cudaMemcpyDeviceToHost), "copy");
    check(cudaGraphExecDestroy(graphs[s]), "destroy");
    check(cudaStreamDestroy(streams[s]), "destroy");
  }
  EXPECT_EQ(got[0], got[1]);
  std::vector<double> values(got[0].size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = to_float(got[0][i]);
  expect_close(layer, input, layer.k, m, 0, layer.n, values, "graph");
}

}  // namespace
}  // namespace slimgemm::cuda
