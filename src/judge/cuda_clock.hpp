// SPDX-License-Identifier: Apache-2.0
// The judge's way of timing graphs: cold L2, device events around each replay.
#pragma once

#include "judge/cuda_capture.hpp"
#include "judge/executor.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace slimgemm::judge {

/// A graph to be timed, and what is enqueued around it, outside the timed span; both may be empty.
struct TimedGraph {
  cudaGraphExec_t graph = nullptr;
  StreamCall before;  ///< ahead of the flush
  StreamCall after;
};

class ReplayClock {
 public:
  /// Makes a stream and the flush buffer on `device` and makes it the thread's current device.
  explicit ReplayClock(int device);

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] int device() const { return device_; }
  [[nodiscard]] int sm_count() const { return sm_count_; }
  [[nodiscard]] std::size_t l2_bytes() const { return l2_bytes_; }
  [[nodiscard]] std::size_t flush_bytes() const { return flush_.size_bytes(); }
  /// Four bytes that read kernels may pretend to write to, so that their loads are kept.
  [[nodiscard]] std::uint32_t* sink() const { return sink_.as<std::uint32_t>(); }

  /// Enqueues for each graph `before`, the flush, an event, the graph, an event and `after`; waits
  /// once and returns the microseconds between the events. If the host enqueued a replay so late
  /// that the device may have waited for it, the batch is thrown away and repeated, a few times at
  /// most. After a pause in which the device may have lowered its clocks, further flushes go first.
  std::vector<double> batch_us(std::span<const TimedGraph> batch);
  /// Median of replays of one graph, after two that are not counted.
  double median_us(cudaGraphExec_t graph, Repeats repeats);
  /// Replays that were late to the end and are therefore in the results: 0 on a healthy machine.
  [[nodiscard]] std::int64_t late_replays() const { return late_replays_; }

 private:
  // The events around a replay.
  struct Span {
    Event begin = make_event();
    Event end = make_event();
    [[nodiscard]] double elapsed_us() const;
  };

  void flush(int passes);
  double measure_flush_us();
  // Returns how many replays were late.
  int enqueue(std::span<const TimedGraph> batch, int first_flush_passes);
  void wait() const;

  int device_;
  int sm_count_ = 0;
  std::size_t l2_bytes_ = 0;
  Stream stream_;
  std::vector<Span> spans_;  // as many as the largest batch
  DeviceMemory flush_;
  DeviceMemory sink_;
  std::chrono::steady_clock::time_point last_replay_;
  double flush_us_ = 0;
  std::int64_t late_replays_ = 0;
};

}  // namespace slimgemm::judge
