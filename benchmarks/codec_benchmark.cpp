// SPDX-License-Identifier: Apache-2.0
// How fast the codec is on a 4096 x 8192 matrix (67.1 MB of BF16, 134.2 MB of FP32).
//
// bytes_per_second counts the bytes of the dense matrix. The number in a benchmark's name is the
// threads given; 0 means one for every hardware thread.
#include <slimgemm/packed.hpp>

#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace {

constexpr std::int64_t n = 4096;
constexpr std::int64_t k = 8192;
constexpr auto elements = static_cast<std::size_t>(n * k);

// Normal weights of standard deviation 0.02, rounded down to BF16. A share of them becomes zero.
std::vector<std::uint16_t> make_weights(double zero_share) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<std::uint16_t> drawn(1 << 20);
  for (std::uint16_t& bits : drawn) {
    bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16);
  }
  const auto limit = static_cast<std::uint32_t>(zero_share * 0x1p32);
  std::vector<std::uint16_t> w(elements);
  for (std::uint16_t& bits : w) {
    const std::uint32_t r = random();
    bits = r < limit ? std::uint16_t{0} : drawn[r % drawn.size()];
  }
  return w;
}

const std::vector<std::uint16_t>& normal_weights() {
  static const std::vector<std::uint16_t> w = make_weights(0);
  return w;
}

const std::vector<std::uint16_t>& sparse_weights() {
  static const std::vector<std::uint16_t> w = make_weights(0.4);
  return w;
}

const std::vector<float>& float_weights() {
  static const std::vector<float> w = [] {
    std::vector<float> values;
    values.reserve(elements);
    for (const std::uint16_t bits : normal_weights()) {
      values.push_back(std::bit_cast<float>(std::uint32_t{bits} << 16));
    }
    return values;
  }();
  return w;
}

void set_bytes(benchmark::State& state, std::size_t size_bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(size_bytes));
}

template <class T>
void pack_weights(benchmark::State& state, const std::vector<T>& w, double max_exception_rate) {
  const slimgemm::PackOptions options{.threads = static_cast<int>(state.range(0)),
                                      .max_exception_rate = max_exception_rate};
  double bits = 0;
  for (auto _ : state) {
    const slimgemm::PackedMatrix packed = slimgemm::pack(w, n, k, options);
    bits = packed.bits_per_weight();
  }
  state.counters["bits_per_weight"] = bits;
  set_bytes(state, w.size() * sizeof(T));
}

template <class T>
void unpack_weights(benchmark::State& state, const std::vector<T>& w, double max_exception_rate) {
  const slimgemm::PackedMatrix packed =
      slimgemm::pack(w, n, k, {.max_exception_rate = max_exception_rate});
  std::vector<T> out(w.size());
  for (auto _ : state) {
    slimgemm::unpack(packed, out, static_cast<int>(state.range(0)));
    benchmark::DoNotOptimize(out.data());
  }
  set_bytes(state, w.size() * sizeof(T));
}

void read_bytes(benchmark::State& state, double max_exception_rate) {
  const slimgemm::PackedMatrix packed =
      slimgemm::pack(normal_weights(), n, k, {.max_exception_rate = max_exception_rate});
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(slimgemm::PackedMatrix::from_bytes(packed.bytes()));
  }
  set_bytes(state, elements * sizeof(std::uint16_t));
}

void pack_split12(benchmark::State& state) { pack_weights(state, normal_weights(), 0.01); }
void pack_split12_40pct_zeros(benchmark::State& state) { pack_weights(state, sparse_weights(), 1); }
void pack_raw16(benchmark::State& state) { pack_weights(state, normal_weights(), 0); }
void pack_raw32(benchmark::State& state) { pack_weights(state, float_weights(), 0); }
void unpack_split12(benchmark::State& state) { unpack_weights(state, normal_weights(), 0.01); }
void unpack_raw16(benchmark::State& state) { unpack_weights(state, normal_weights(), 0); }
void unpack_raw32(benchmark::State& state) { unpack_weights(state, float_weights(), 0); }
void from_bytes_split12(benchmark::State& state) { read_bytes(state, 0.01); }
void from_bytes_raw16(benchmark::State& state) { read_bytes(state, 0); }

void threads(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Arg(1)->Arg(0)->Unit(benchmark::kMillisecond)->UseRealTime();
}

BENCHMARK(pack_split12)->Apply(threads);
BENCHMARK(pack_split12_40pct_zeros)->Apply(threads);
BENCHMARK(pack_raw16)->Apply(threads);
BENCHMARK(pack_raw32)->Apply(threads);
BENCHMARK(unpack_split12)->Apply(threads);
BENCHMARK(unpack_raw16)->Apply(threads);
BENCHMARK(unpack_raw32)->Apply(threads);
BENCHMARK(from_bytes_split12)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(from_bytes_raw16)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
