// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_clock.hpp"

#include "judge/cuda_kernels.hpp"

#include <algorithm>

namespace slimgemm::judge {
namespace {

constexpr std::size_t min_flush_bytes = std::size_t{256} << 20;
constexpr int max_attempts = 6;
constexpr double slow_flush_us = 1000;  // under a sanitizer or debugger: no use in repeating
constexpr int uncounted_replays = 2;
constexpr std::chrono::milliseconds pause_limit(20);
constexpr double work_after_pause_us = 8000;

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

ReplayClock::ReplayClock(int device) : device_(device) {
  cuda::check(cudaSetDevice(device), "cudaSetDevice(" + std::to_string(device) + ")");
  sm_count_ = attribute(cudaDevAttrMultiProcessorCount, device);
  l2_bytes_ = static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize, device));
  stream_ = make_stream();
  spans_.resize(1);
  flush_ = DeviceMemory(std::max(4 * l2_bytes_, min_flush_bytes));
  sink_ = DeviceMemory(sizeof(std::uint32_t));
  cuda::check(cudaMemsetAsync(flush_.data(), 1, flush_.size_bytes(), stream()),
              "cudaMemsetAsync of the flush buffer");
  cuda::check(cudaMemsetAsync(sink_.data(), 0, sink_.size_bytes(), stream()), "cudaMemsetAsync");
  flush_us_ = measure_flush_us();
}

double ReplayClock::measure_flush_us() {
  flush(2);
  cuda::check(cudaEventRecord(spans_[0].begin.get(), stream()), "cudaEventRecord");
  flush(1);
  cuda::check(cudaEventRecord(spans_[0].end.get(), stream()), "cudaEventRecord");
  wait();
  return spans_[0].elapsed_us();
}

double ReplayClock::Span::elapsed_us() const {
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1000;
}

void ReplayClock::wait() const {
  cuda::check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize after a replay");
}

void ReplayClock::flush(int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    launch_flush(flush_.data(), flush_.size_bytes(), sink(), sm_count_, stream());
  }
}

int ReplayClock::enqueue(std::span<const TimedGraph> batch, int first_flush_passes) {
  int late = 0;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Span& span = spans_[i];
    if (batch[i].before) batch[i].before(stream());
    flush(i == 0 ? first_flush_passes : 1);
    cuda::check(cudaEventRecord(span.begin.get(), stream()), "cudaEventRecord");
    cuda::check(cudaGraphLaunch(batch[i].graph, stream()), "cudaGraphLaunch");
    cuda::check(cudaEventRecord(span.end.get(), stream()), "cudaEventRecord");
    if (cudaEventQuery(span.begin.get()) == cudaSuccess) ++late;
    static_cast<void>(cudaGetLastError());  // cudaErrorNotReady, the answer hoped for
    if (batch[i].after) batch[i].after(stream());
  }
  return late;
}

std::vector<double> ReplayClock::batch_us(std::span<const TimedGraph> batch) {
  if (spans_.size() < batch.size()) spans_.resize(batch.size());
  if (std::chrono::steady_clock::now() - last_replay_ > pause_limit) {
    flush(static_cast<int>(work_after_pause_us / std::max(flush_us_, 1.0)));
  }
  const int attempts = flush_us_ > slow_flush_us ? 1 : max_attempts;
  for (int attempt = 1;; ++attempt) {
    // Each further attempt reads the buffer once more, which gives the host more time to enqueue.
    // The first replay needs it: from each to the next the device falls further behind the host.
    const int late = enqueue(batch, attempt);
    wait();
    last_replay_ = std::chrono::steady_clock::now();
    if (late > 0 && attempt < attempts) continue;
    late_replays_ += late;
    std::vector<double> times_us;
    for (std::size_t i = 0; i < batch.size(); ++i) times_us.push_back(spans_[i].elapsed_us());
    return times_us;
  }
}

double ReplayClock::median_us(cudaGraphExec_t graph, Repeats repeats) {
  const auto queued = static_cast<std::size_t>(std::max(repeats.queued, 1));
  const auto total = static_cast<std::size_t>(uncounted_replays + std::max(repeats.count, 1));
  std::vector<double> times_us;
  while (times_us.size() < total) {
    const std::vector<TimedGraph> batch(std::min(queued, total - times_us.size()),
                                        TimedGraph{graph, {}, {}});
    const std::vector<double> some_us = batch_us(batch);
    times_us.insert(times_us.end(), some_us.begin(), some_us.end());
  }
  const auto first = times_us.begin() + uncounted_replays;
  const auto middle = first + (times_us.end() - first) / 2;
  std::nth_element(first, middle, times_us.end());
  return *middle;
}

}  // namespace slimgemm::judge
