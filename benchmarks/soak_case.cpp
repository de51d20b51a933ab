// SPDX-License-Identifier: Apache-2.0
#include "soak_case.hpp"

#include "judge/cuda_capture.hpp"
#include "judge/inputs.hpp"
#include "support/bf16.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace slimgemm::bench {

constexpr int graphs_in_flight = 4;

/// A graph on a stream of its own, enqueued again and again.
class Lane {
 public:
  explicit Lane(const judge::StreamCall& call) : stream_(judge::make_stream()) {
    call(stream_.get());  // loads code, which a capture must not
    wait();
    graph_ = judge::capture(stream_.get(), call);
    for (judge::Event& event : done_) event = judge::make_event();
  }

  /// Enqueues the graph unless enough of them wait already; says whether it did.
  bool try_launch() {
    const judge::Event& oldest = done_[static_cast<std::size_t>(launches_ % graphs_in_flight)];
    if (launches_ >= graphs_in_flight) {
      const cudaError_t status = cudaEventQuery(oldest.get());
      if (status == cudaErrorNotReady) {
        static_cast<void>(cudaGetLastError());
        return false;
      }
      cuda::check(status, "cudaEventQuery");
    }
    cuda::check(cudaGraphLaunch(graph_.get(), stream_.get()), "cudaGraphLaunch");
    cuda::check(cudaEventRecord(oldest.get(), stream_.get()), "cudaEventRecord");
    ++launches_;
    return true;
  }
  void wait() const { cuda::check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize"); }
  [[nodiscard]] std::int64_t launches() const { return launches_; }

 private:
  judge::Stream stream_;
  judge::GraphExec graph_;
  std::array<judge::Event, graphs_in_flight> done_;
  std::int64_t launches_ = 0;
};

namespace {

constexpr std::uint64_t seed = 1;
constexpr std::size_t copy_bytes = std::size_t{16} << 20;
constexpr std::int64_t load_tokens[] = {1, 64, 8};

judge::DeviceMemory upload(const std::vector<std::uint16_t>& from) {
  judge::DeviceMemory memory(from.size() * sizeof(from[0]));
  cuda::check(cudaMemcpy(memory.data(), from.data(), memory.size_bytes(), cudaMemcpyHostToDevice),
              "cudaMemcpy of x");
  return memory;
}

judge::Input make_x(std::int64_t m, std::int64_t k) {
  return judge::make_input(m, k, seed, judge::Layer{}, 0);
}

/// The plan of the library, or where that has no cluster the best that has one: of the stream
/// kernels, or of all if none of them fits.
plan::KernelPlan choose_plan(const plan::Problem& problem, const plan::GpuFacts& gpu,
                             bool cluster) {
  plan::KernelPlan first = plan::plan_kernel(problem, gpu);
  if (!cluster || first.cluster > 1) return first;
  std::optional<plan::KernelPlan> best;
  for (const plan::Family family : {plan::Family::stream, plan::Family::tile}) {
    for (const plan::Instance& instance : plan::instances_of(problem.encoding)) {
      const double us = plan::estimate_us(instance, problem, gpu);
      if (instance.family != family || !std::isfinite(us)) continue;
      plan::KernelPlan plan = plan::plan_instance(instance, problem, gpu);
      if (plan.cluster > 1 && (!best || us < best->estimated_us)) best = std::move(plan);
    }
    if (best) return *best;
  }
  throw Error(ErrorCode::unsupported,
              fmt::format("the kernel table has no instance with a cluster for {} x {}, m={}",
                          problem.rows, problem.k, problem.m));
}

/// The first byte of a value that is NaN or Inf; the size of `bytes` if all are finite.
std::size_t find_not_finite(const std::vector<unsigned char>& bytes, DType dtype) {
  const auto value_bytes = static_cast<std::size_t>(size_bytes(dtype));
  for (std::size_t i = 0; i < bytes.size(); i += value_bytes) {
    std::uint16_t high = 0;  // of an FP32 value, too, this half has the exponent
    std::memcpy(&high, &bytes[i + value_bytes - sizeof high], sizeof high);
    if (!std::isfinite(bf16_to_float(high))) return i;
  }
  return bytes.size();
}

}  // namespace

std::string SoakCase::name() const {
  return fmt::format("{} m={}{}", layer.name, m, programmatic ? " programmatic" : "");
}

PackedMatrix pack_layer(const judge::LayerInfo& layer) {
  judge::LayerInfo alone = layer;
  alone.layer = judge::Layer{};
  const judge::Weights weights = judge::generate_weights({alone}, seed);
  const judge::Weights::Matrix& w = weights.matrices[0];
  if (layer.dtype == DType::f32) return pack(std::span<const float>(w.f32), layer.n, layer.k);
  return pack(std::span<const std::uint16_t>(w.bf16), layer.n, layer.k);
}

SoakLoad::SoakLoad(const judge::LayerInfo& layer, int cuda_device)
    : linear_(pack_layer(layer), {.device = Device::cuda, .cuda_device = cuda_device}),
      copies_(2 * copy_bytes) {
  const std::int64_t m = *std::max_element(std::begin(load_tokens), std::end(load_tokens));
  x_ = upload(make_x(m, layer.k).x);
  out_ = judge::DeviceMemory(static_cast<std::size_t>(m * layer.n * size_bytes(layer.dtype)));
}

void SoakLoad::enqueue(cudaStream_t stream) const {
  for (const std::int64_t m : load_tokens) {
    linear_.run(x_.as<std::uint16_t>(), m, out_.data(), stream);
  }
  cuda::check(cudaMemcpyAsync(copies_.as<char>() + copy_bytes, copies_.data(), copy_bytes,
                              cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync of the load");
}

Soak::Soak(const SoakCase& which, const PackedMatrix& packed, int cuda_device)
    : which_(which),
      backend_(packed, {.device = Device::cuda,
                        .cuda_device = cuda_device,
                        .programmatic_launch = which.programmatic}),
      plan_(choose_plan(backend_.problem(which.layer.n, which.m, true), backend_.gpu(),
                        which.cluster)),
      x_source_(upload(make_x(which.m, which.layer.k).x)),
      out_(static_cast<std::size_t>(which.m * which.layer.n * size_bytes(which.layer.dtype))),
      expected_(out_.size_bytes()),
      tally_(sizeof(SoakTally)) {
  if (out_.size_bytes() % 16 != 0 || x_source_.size_bytes() % 16 != 0) {
    throw Error(ErrorCode::invalid_argument,
                which.name() + ": x and out must be multiples of 16 bytes");
  }
  x_ = judge::DeviceMemory(x_source_.size_bytes());
  cuda::check(cudaMemcpy(x_.data(), x_source_.data(), x_.size_bytes(), cudaMemcpyDeviceToDevice),
              "cudaMemcpy of x");
  make_expected();
}

SoakOutcome Soak::run(const SoakLoad& load, std::int64_t replays,
                      const std::function<void(double share)>& progress) {
  Lane lane([this](cudaStream_t stream) { enqueue(stream); });
  Lane load_lane([&load](cudaStream_t stream) { load.enqueue(stream); });
  require_alert(lane);
  const std::int64_t before = lane.launches();
  const std::int64_t graphs = (replays + replays_a_graph - 1) / replays_a_graph;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t done = 0; done < graphs;) {
    const bool loaded = load_lane.try_launch();
    if (lane.try_launch()) {
      done = lane.launches() - before;
      progress(static_cast<double>(done) / static_cast<double>(graphs));
    } else if (!loaded) {
      std::this_thread::yield();
    }
  }
  lane.wait();
  load_lane.wait();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const SoakTally tally = read_tally(graphs * replays_a_graph);
  return {.replays = static_cast<std::int64_t>(tally.checks),
          .differing = static_cast<std::int64_t>(tally.differing),
          .first_replay = static_cast<std::int64_t>(tally.first_check),
          .first_byte = static_cast<std::int64_t>(tally.first_byte),
          .load_rounds = load_lane.launches(),
          .elapsed_s = elapsed.count()};
}

void Soak::run_layer(cudaStream_t stream) const {
  backend_.run_with(plan_, {.x = x_.as<std::uint16_t>(),
                            .m = which_.m,
                            .x_row_stride = which_.layer.k,
                            .out = out_.data(),
                            .row_begin = 0,
                            .row_end = which_.layer.n,
                            .stream = stream});
}

void Soak::enqueue(cudaStream_t stream) const {
  const SoakCheck check{.out = out_.data(),
                        .expected = expected_.data(),
                        .out_bytes = out_.size_bytes(),
                        .x = x_.data(),
                        .x_source = x_source_.data(),
                        .x_bytes = x_.size_bytes(),
                        .tally = tally_.as<SoakTally>()};
  for (int i = 0; i < replays_a_graph; ++i) {
    run_layer(stream);
    launch_soak_check(check, stream);
  }
}

void Soak::make_expected() {
  cuda::check(cudaMemset(out_.data(), 0xFF, out_.size_bytes()), "cudaMemset of out");
  run_layer(nullptr);
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize after the first result");
  std::vector<unsigned char> bytes(out_.size_bytes());
  cuda::check(cudaMemcpy(bytes.data(), out_.data(), bytes.size(), cudaMemcpyDeviceToHost),
              "cudaMemcpy of the first result");
  const std::size_t found = find_not_finite(bytes, which_.layer.dtype);
  if (found < bytes.size()) {
    throw Error(ErrorCode::device_error,
                fmt::format("{}: the first result's value at byte {} is not finite, or was not "
                            "written",
                            which_.name(), found));
  }
  cuda::check(cudaMemcpy(expected_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice),
              "cudaMemcpy of the first result");
}

void Soak::reset_tally() const {
  const SoakTally zero;
  cuda::check(cudaMemcpy(tally_.data(), &zero, sizeof zero, cudaMemcpyHostToDevice),
              "cudaMemcpy of the tally");
  // A copy from pageable memory may return before it has arrived.
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

SoakTally Soak::read_tally(std::int64_t checks) const {
  SoakTally tally;
  cuda::check(cudaMemcpy(&tally, tally_.data(), sizeof tally, cudaMemcpyDeviceToHost),
              "cudaMemcpy of the tally");
  if (static_cast<std::int64_t>(tally.checks) != checks) {
    throw Error(ErrorCode::device_error, fmt::format("{}: {} results were checked instead of {}",
                                                     which_.name(), tally.checks, checks));
  }
  return tally;
}

void Soak::flip_bit_of_expected() const {
  unsigned char byte = 0;
  auto* const last = expected_.as<unsigned char>() + expected_.size_bytes() - 1;
  cuda::check(cudaMemcpy(&byte, last, 1, cudaMemcpyDeviceToHost), "cudaMemcpy of a byte");
  byte ^= 1;
  cuda::check(cudaMemcpy(last, &byte, 1, cudaMemcpyHostToDevice), "cudaMemcpy of a byte");
}

void Soak::require_alert(Lane& lane) const {
  flip_bit_of_expected();
  reset_tally();
  lane.try_launch();
  lane.wait();
  const SoakTally tally = read_tally(replays_a_graph);
  if (tally.differing != replays_a_graph || tally.first_byte + 16 != expected_.size_bytes()) {
    throw Error(ErrorCode::device_error,
                fmt::format("{}: one bit of the last value is flipped; the check saw differences "
                            "in {} of {} results, the lowest at byte {} of {}",
                            which_.name(), tally.differing, replays_a_graph, tally.first_byte,
                            expected_.size_bytes()));
  }
  flip_bit_of_expected();
  reset_tally();
}

}  // namespace slimgemm::bench
