// SPDX-License-Identifier: Apache-2.0
// Every GPU kernel instance against an FP64 reference: random rows, probe rows, exceptions, odd
// shapes, poisoned outputs between guard zones, bit identity from run to run.
#include "cuda/cuda_backend.hpp"
#include "cuda/kernel_entry.hpp"
#include "plan/kernel_plan.hpp"
#include "unit/gpu_test_support.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::plan {

// GoogleTest names a parameter by this.
void PrintTo(const Instance& instance, std::ostream* out) { *out << instance_name(instance); }

}  // namespace slimgemm::plan

namespace slimgemm::cuda {
namespace {

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
  std::int64_t least_k_tiles;
  bool tile;
  bool any_x;    // serves x of any alignment
  bool by_rows;  // keeps all of x in shared memory: one block of tokens, short K
};
Facts facts_of(const plan::Instance& instance) {
  if (instance.family == plan::Family::tile) {
    const plan::TileConfig& c = instance.tile();
    return {c.encoding, c.tokens, c.cluster, plan::least_k_tiles(c), true, false, false};
  }
  const plan::StreamConfig& c = instance.stream();
  return {c.encoding, plan::cta_tokens(c),
          c.cluster,  c.cluster,
          false,      c.x_access == plan::XAccess::any,
          c.by_rows};
}

class KernelInstance : public testing::TestWithParam<plan::Instance> {
 protected:
  void SetUp() override {
    if (!has_gpu()) GTEST_SKIP() << "no CUDA device";
  }

  static bool keeps_x(std::int64_t m, std::int64_t k) {
    const std::int64_t k_tiles = (k + format::tile_k - 1) / format::tile_k;
    return plan::stream_smem_bytes(GetParam().stream(), static_cast<int>(m), k_tiles) <=
           plan::smem_limit_bytes;
  }

  /// run_twice() with an input of its own; what the instance cannot serve must be refused.
  static void run_case(const CudaBackend& backend, const Layer& layer, std::int64_t m,
                       std::int64_t row_begin, std::int64_t row_end, std::int64_t row_stride,
                       std::size_t x_offset) {
    const std::int64_t rows = row_end - row_begin;
    const bool aligned = row_stride % 8 == 0 && x_offset % 8 == 0;
    const plan::Problem problem = backend.problem(rows, m, aligned);
    const Facts facts = facts_of(GetParam());
    const bool too_large = facts.by_rows && (m > facts.tokens || !keeps_x(m, layer.k));
    if ((!aligned && !facts.any_x) || too_large) {
      EXPECT_THROW(plan::plan_instance(GetParam(), problem, backend.gpu()), Error);
      return;
    }
    const Input input = make_input(m, layer.k, row_stride, static_cast<unsigned>(m % 8));
    run_twice(backend, layer, input,
              {.m = m, .x_row_stride = row_stride, .row_begin = row_begin, .row_end = row_end},
              x_offset);
  }

  /// One call with the instance under test, twice; compares with the reference and with itself.
  /// args: without pointers.
  static void run_twice(const CudaBackend& backend, const Layer& layer, const Input& input,
                        RunArgs args, std::size_t x_offset) {
    const std::int64_t rows = args.row_end - args.row_begin;
    const bool aligned = args.x_row_stride % 8 == 0 && x_offset % 8 == 0;
    const auto plan =
        plan::plan_instance(GetParam(), backend.problem(rows, args.m, aligned), backend.gpu());
    const std::string what = plan::instance_name(plan.instance) + " n=" + std::to_string(rows) +
                             " k=" + std::to_string(layer.k) + " m=" + std::to_string(args.m);
    const auto call = [&](const std::uint16_t* x, void* out) {
      args.x = x;
      args.out = out;
      backend.run_with(plan, args);
    };
    const DType dtype = layer.packed.dtype();
    const auto got = run_guarded(call, input.x, x_offset, args.m, rows, dtype);
    expect_close(layer, input, args.x_row_stride, args.m, args.row_begin, args.row_end, got, what);
    const auto again = run_guarded(call, input.x, x_offset, args.m, rows, dtype);
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

// Nine token blocks make two groups of five, so that the CTAs of one have no tokens.
TEST_P(KernelInstance, ServesTokenBlocksInGroups) {
  const Facts facts = facts_of(GetParam());
  if (!facts.tile) GTEST_SKIP() << "a stream kernel";
  const Layer layer = make_layer(facts.encoding, 80, 64 * (facts.least_k_tiles + 1), 0.001, 9);
  const CudaBackend backend(layer.packed, {});
  run_case(backend, layer, 8 * facts.tokens + 1, 0, layer.n, layer.k, 0);
}

// Two or three tiles for each CTA, with more k tiles than the ring of x holds and with as few as
// can be; tiles that are whole, and tiles that are not: features stored one by one, token blocks
// that end before their tile does, the last one earlier still. An odd number of row blocks leaves
// the second CTA of a pair without rows. Exceptions beyond the head of a row tile.
TEST_P(KernelInstance, GoesOnToFurtherTiles) {
  const Facts facts = facts_of(GetParam());
  if (!facts.tile || !plan::is_persistent(GetParam().tile())) GTEST_SKIP() << "not persistent";
  const plan::TileConfig& c = GetParam().tile();
  const std::int64_t row_groups = 15;
  const std::int64_t n = 64 + row_groups * c.row_blocks * 64;
  for (const bool whole : {true, false}) {
    const std::int64_t k_tiles = whole ? c.x_stages + 1 : plan::least_k_tiles(c);
    const Layer layer = make_layer(facts.encoding, n, 64 * k_tiles, whole ? 0.02 : 0.06, 10);
    const CudaBackend backend(layer.packed, {});
    const std::int64_t m = (2 * backend.gpu().sm_count / row_groups + 1) * facts.tokens;
    run_case(backend, layer, whole ? m : m - facts.tokens / 2 - 3, 64, whole ? n : n - 3, layer.k,
             0);
  }
}

// What is kept in local memory comes late, behind stores: six values made a tile of 128 x 256 2 us
// slower.
TEST_P(KernelInstance, KeepsNothingInLocalMemory) {
  cudaFuncAttributes attributes{};
  check(cudaFuncGetAttributes(&attributes, kernel_for(GetParam())), "attributes of the kernel");
  EXPECT_EQ(attributes.localSizeBytes, 0u);
}

// Small enough for a run under compute-sanitizer's slower tools.
TEST_P(KernelInstance, ServesASmallShape) {
  const Facts facts = facts_of(GetParam());
  const std::int64_t k = 64 * (facts.least_k_tiles + 8);
  for (const std::int64_t n : {50, 56}) {  // features stored one by one, and by eight
    const Layer layer = make_layer(facts.encoding, n, k, 0.005, 6);
    const CudaBackend backend(layer.packed, {});
    run_case(backend, layer, facts.tokens - 1, 0, layer.n, k, 0);
    run_case(backend, layer, 3, 0, layer.n, k + 1, 0);
  }
}

// x comes from the call before it in the stream, weights do not.
TEST_P(KernelInstance, WaitsForXInADependentLaunch) {
  const Facts facts = facts_of(GetParam());
  const std::int64_t k = 64 * (facts.least_k_tiles + 8);
  const Layer layer = make_layer(facts.encoding, 200, k, 0.005, 7);
  const CudaBackend backend(layer.packed, {.programmatic_launch = true});
  run_case(backend, layer, facts.tokens - 1, 0, layer.n, k, 0);
  const CudaBackend plain(layer.packed, {});
  const bool persistent = facts.tile && plan::is_persistent(GetParam().tile());
  const std::int64_t m = facts.tokens * (persistent ? backend.gpu().sm_count : 1);
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
  const std::int64_t least_k = 64 * (facts.least_k_tiles - 1) + 1;
  std::vector<std::int64_t> ks = {least_k, least_k + 7, least_k + 62, least_k + 63, least_k + 1999};
  if (facts.tile) ks = {64 * facts.least_k_tiles, 64 * (facts.least_k_tiles + 1), 64 * 29};
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

/// FP32 weights of random bits, from 2^-109 to 2^127.
Layer layer_of_every_exponent(std::int64_t n, std::int64_t k) {
  std::mt19937 random(8);
  std::uniform_int_distribution<std::uint32_t> exponent(18, 254);
  std::vector<float> w(static_cast<std::size_t>(n * k));
  for (float& value : w) {
    const auto bits = static_cast<std::uint32_t>(random());
    value = std::bit_cast<float>((bits & 0x807FFFFFu) | exponent(random) << 23);
  }
  return {n, k, {w.begin(), w.end()}, pack(std::span<const float>(w), n, k)};
}

// The three terms of a weight add up to it, whatever its exponent: all rows of x are probe rows.
TEST_P(KernelInstance, GivesBackFp32WeightsOfEveryExponent) {
  const Facts facts = facts_of(GetParam());
  if (facts.encoding != Encoding::raw32) GTEST_SKIP() << "BF16 weights";
  const std::int64_t k = 64 * (facts.least_k_tiles + 8);
  const Layer layer = layer_of_every_exponent(50, k);
  const CudaBackend backend(layer.packed, {});
  const std::int64_t m = facts.tokens;
  for (std::int64_t first = 0; first < k; first += m) {
    Input input{std::vector<std::uint16_t>(static_cast<std::size_t>(m * k), 0), {}};
    for (std::int64_t i = 0; i < m; ++i) {
      input.probe_k.push_back((first + i) % k);
      input.x[static_cast<std::size_t>(i * k + input.probe_k.back())] = float_to_bf16(0.5f);
    }
    run_twice(backend, layer, input, {.m = m, .x_row_stride = k, .row_end = layer.n}, 0);
  }
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

// Some hundred exceptions a row tile, so that those of a cluster's later ranks begin beyond the
// head.
TEST_P(KernelInstance, FindsTheExceptionsOfEveryRank) {
  const Facts facts = facts_of(GetParam());
  if (facts.encoding != Encoding::split12) GTEST_SKIP() << "the encoding has no exceptions";
  if (facts.cluster == 1) GTEST_SKIP() << "one rank";
  for (const double rate : {0.01, 0.045, 0.055, 0.06}) {
    const Layer layer = make_layer(facts.encoding, 200, 64 * 16, rate, 5);
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

}  // namespace
}  // namespace slimgemm::cuda
