// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_clock.hpp"

#include "judge/cuda_kernels.hpp"

#include <algorithm>
#include <vector>

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
  begin_ = make_event();
  end_ = make_event();
  flush_ = DeviceMemory(std::max(4 * l2_bytes_, min_flush_bytes));
  sink_ = DeviceMemory(sizeof(std::uint32_t));
  cuda::check(cudaMemsetAsync(flush_.data(), 1, flush_.size_bytes(), stream()),
              "cudaMemsetAsync of the flush buffer");
  cuda::check(cudaMemsetAsync(sink_.data(), 0, sink_.size_bytes(), stream()), "cudaMemsetAsync");
  flush_us_ = measure_flush_us();
}

double ReplayClock::measure_flush_us() {
  flush(2);
  cuda::check(cudaEventRecord(begin_.get(), stream()), "cudaEventRecord");
  flush(1);
  cuda::check(cudaEventRecord(end_.get(), stream()), "cudaEventRecord");
  return elapsed_us();
}

double ReplayClock::elapsed_us() {
  cuda::check(cudaStreamSynchronize(stream()), "cudaStreamSynchronize after a replay");
  float milliseconds = 0;
  cuda::check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()),
              "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1000;
}

void ReplayClock::flush(int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    launch_flush(flush_.data(), flush_.size_bytes(), sink(), sm_count_, stream());
  }
}

double ReplayClock::replay_us(cudaGraphExec_t graph, const StreamCall& prepare) {
  if (std::chrono::steady_clock::now() - last_replay_ > pause_limit) {
    flush(static_cast<int>(work_after_pause_us / std::max(flush_us_, 1.0)));
  }
  const int attempts = flush_us_ > slow_flush_us ? 1 : max_attempts;
  for (int attempt = 1;; ++attempt) {
    if (prepare) prepare(stream());
    // Each further attempt reads the buffer once more, which gives the host more time to enqueue.
    flush(attempt);
    cuda::check(cudaEventRecord(begin_.get(), stream()), "cudaEventRecord");
    cuda::check(cudaGraphLaunch(graph, stream()), "cudaGraphLaunch");
    cuda::check(cudaEventRecord(end_.get(), stream()), "cudaEventRecord");
    const bool late = cudaEventQuery(begin_.get()) == cudaSuccess;
    static_cast<void>(cudaGetLastError());  // cudaErrorNotReady, the answer hoped for
    const double time_us = elapsed_us();
    last_replay_ = std::chrono::steady_clock::now();
    if (late && attempt < attempts) continue;
    if (late) ++late_replays_;
    return time_us;
  }
}

double ReplayClock::median_us(cudaGraphExec_t graph, int repeats, const StreamCall& prepare) {
  for (int i = 0; i < uncounted_replays; ++i) replay_us(graph, prepare);
  std::vector<double> times_us;
  for (int i = 0; i < std::max(repeats, 1); ++i) times_us.push_back(replay_us(graph, prepare));
  const auto middle = times_us.begin() + static_cast<std::ptrdiff_t>(times_us.size() / 2);
  std::nth_element(times_us.begin(), middle, times_us.end());
  return *middle;
}

}  // namespace slimgemm::judge
