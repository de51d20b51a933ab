// SPDX-License-Identifier: Apache-2.0
// The public Linear on a GPU: every bit pattern, Inf and NaN, graphs and streams.
#include "cuda/device_memory.hpp"
#include "unit/gpu_test_support.hpp"

#include <slimgemm/slimgemm.h>
#include <slimgemm/slimgemm.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace slimgemm::cuda {
namespace {

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
        const double expected = bf16_to_float(w[static_cast<std::size_t>(j * k + i)]);
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
  EXPECT_EQ(got[0], 128 * bf16_to_float(0x3C00));
  EXPECT_EQ(got[1], INFINITY);
  EXPECT_EQ(got[2], -INFINITY);
  EXPECT_TRUE(std::isnan(got[3]));
  EXPECT_EQ(got[4], 128 * bf16_to_float(0x3C00));
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
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = bf16_to_float(got[0][i]);
  expect_close(layer, input, layer.k, m, 0, layer.n, values, "graph");
}

/// The dependency between two calls that follow each other in a captured stream.
cudaGraphDependencyType edge_between(const std::function<void(cudaStream_t)>& call) {
#if CUDART_VERSION >= 13000
  const auto get_edges = cudaGraphGetEdges;
#else
  const auto get_edges = cudaGraphGetEdges_v2;
#endif
  call(nullptr);  // loads the kernel, which a capture must not
  check(cudaDeviceSynchronize(), "first call");
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
  cudaGraph_t graph;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin capture");
  call(stream);
  call(stream);
  check(cudaStreamEndCapture(stream, &graph), "end capture");
  cudaGraphNode_t from{};
  cudaGraphNode_t to{};
  cudaGraphEdgeData edge{};
  std::size_t count = 1;
  check(get_edges(graph, &from, &to, &edge, &count), "edges");
  EXPECT_EQ(count, 1u);
  check(cudaGraphDestroy(graph), "destroy graph");
  check(cudaStreamDestroy(stream), "destroy stream");
  return static_cast<cudaGraphDependencyType>(edge.type);
}

TEST_F(LinearGpu, LaunchesProgrammaticallyWhenAskedTo) {
  const Layer layer = make_layer(Encoding::split12, 64, 640, 0.001, 8);
  for (const std::int64_t m : {1, 200}) {  // a stream and a tile kernel
    const DeviceMemory x(static_cast<std::size_t>(m * layer.k * 2));
    const DeviceMemory out(static_cast<std::size_t>(m * layer.n * 2));
    check(cudaMemset(x.as<void>(), 0, x.size_bytes()), "fill x");
    for (const bool programmatic : {false, true}) {
      const auto expected =
          programmatic ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault;
      const Linear linear(layer.packed,
                          {.device = Device::cuda, .programmatic_launch = programmatic});
      EXPECT_EQ(expected, edge_between([&](cudaStream_t stream) {
                  linear.run(x.as<std::uint16_t>(), m, out.as<void>(), stream);
                }))
          << linear.plan(m).to_string();
    }
  }
}

TEST_F(LinearGpu, LaunchesProgrammaticallyThroughTheCInterface) {
  const std::vector<std::uint16_t> w(64 * 64, 0x3F80);
  slimgemm_packed* packed = nullptr;
  ASSERT_EQ(slimgemm_pack(w.data(), SLIMGEMM_BF16, 64, 64, 1, &packed), SLIMGEMM_OK);
  const DeviceMemory x(64 * 2);
  const DeviceMemory out(64 * 2);
  for (const std::int32_t programmatic : {0, 1}) {
    slimgemm_linear_options options{};
    options.struct_size = sizeof(options);
    options.device = SLIMGEMM_CUDA;
    options.programmatic_launch = programmatic;
    slimgemm_linear* linear = nullptr;
    ASSERT_EQ(slimgemm_linear_create_with(packed, &options, &linear), SLIMGEMM_OK)
        << slimgemm_last_error();
    EXPECT_EQ(
        edge_between([&](cudaStream_t stream) {
          EXPECT_EQ(
              slimgemm_linear_run(linear, x.as<std::uint16_t>(), 1, out.as<void>(), stream, 0),
              SLIMGEMM_OK)
              << slimgemm_last_error();
        }),
        programmatic == 1 ? cudaGraphDependencyTypeProgrammatic : cudaGraphDependencyTypeDefault);
    slimgemm_linear_free(linear);
  }
  slimgemm_packed_free(packed);
}

}  // namespace
}  // namespace slimgemm::cuda
