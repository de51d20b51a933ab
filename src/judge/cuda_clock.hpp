// SPDX-License-Identifier: Apache-2.0
// The judge's way of timing a graph: cold L2, device events around one replay.
#pragma once

#include "judge/cuda_capture.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace slimgemm::judge {

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

  /// Enqueues `prepare` (may be empty), the flush, an event, the graph and an event, waits and
  /// returns the microseconds between the events. A replay that the host enqueued so late that the
  /// device may have waited for it is thrown away and repeated, a few times at most. After a pause
  /// in which the device may have lowered its clocks, further flushes go first.
  double replay_us(cudaGraphExec_t graph, const StreamCall& prepare = {});
  /// Median of `repeats` replays, after two that are not counted.
  double median_us(cudaGraphExec_t graph, int repeats, const StreamCall& prepare = {});
  /// Replays that were late to the end and are therefore in the results: 0 on a healthy machine.
  [[nodiscard]] std::int64_t late_replays() const { return late_replays_; }

 private:
  void flush(int passes);
  double measure_flush_us();
  double elapsed_us();  // waits for the stream, then from begin_ to end_

  int device_;
  int sm_count_ = 0;
  std::size_t l2_bytes_ = 0;
  Stream stream_;
  Event begin_;
  Event end_;
  DeviceMemory flush_;
  DeviceMemory sink_;
  std::chrono::steady_clock::time_point last_replay_;
  double flush_us_ = 0;
  std::int64_t late_replays_ = 0;
};

}  // namespace slimgemm::judge
