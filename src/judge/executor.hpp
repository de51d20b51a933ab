// SPDX-License-Identifier: Apache-2.0
// The machine that the judge measures on. All rules, statistics and verdicts are above this line
// and know nothing of CUDA; what differs between CPU and GPU is below it.
#pragma once

#include "judge/cases.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace slimgemm::judge {

/// Memory that contenders see: host memory on the CPU, device memory on a GPU.
class Buffer {
 public:
  virtual ~Buffer() = default;
  [[nodiscard]] virtual void* data() const = 0;
  [[nodiscard]] virtual std::size_t size_bytes() const = 0;
};

/// A call made ready for replay: a captured CUDA graph, or on the CPU the function itself.
class Recorded {
 public:
  virtual ~Recorded() = default;
};

/// What happens before a timed replay, outside the timed span, in this order.
struct Preparation {
  const Buffer* x_source = nullptr;  ///< copied to x, so that every replay sees another input
  Buffer* x = nullptr;
  std::size_t x_bytes = 0;
  Buffer* out = nullptr;  ///< filled with poison_byte, its guard zones included
};

/// One timed replay of a batch.
struct Replay {
  Recorded* recorded = nullptr;
  Preparation preparation;
  /// Receives preparation.out after the replay, outside the timed span and before the caches are
  /// emptied for the next one. Null: nobody needs it, as `out` still holds it after the batch.
  Buffer* out_copy = nullptr;
};

/// How many replays a measurement takes, and how many of them are enqueued before the host waits.
struct Repeats {
  int count = 1;
  int queued = 1;  ///< 1: it waits after each
};

/// Poison: every element that is not written reads as NaN (BF16 0xFFFF, FP32 0xFFFFFFFF).
inline constexpr unsigned char poison_byte = 0xFF;

class Executor {
 public:
  virtual ~Executor() = default;

  /// Facts for the report: {"device", "NVIDIA H200"}, {"driver", ...}, {"l2_bytes", ...}, ...
  [[nodiscard]] virtual std::vector<std::pair<std::string, std::string>> describe() const = 0;
  [[nodiscard]] virtual bool is_cuda() const = 0;
  [[nodiscard]] virtual int cuda_device() const = 0;  ///< -1 on the CPU

  /// Allocates; contents undefined. Throws Error(out_of_memory) naming the size.
  virtual std::unique_ptr<Buffer> allocate(std::size_t bytes) = 0;
  virtual void upload(Buffer& to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const Buffer& from, std::size_t offset, std::size_t bytes) = 0;

  /// Records `call` (given a stream) for replay, running it once before on the same stream to load
  /// code. Throws Error(device_error) that says "host synchronisation", "allocation" or what else
  /// broke the capture.
  virtual std::unique_ptr<Recorded> record(const std::function<void(void* stream)>& call) = 0;

  /// For each replay in turn: prepares, reads a buffer of at least 4x the last-level cache, replays
  /// once and copies `out` aside. A device is handed the whole batch and then waited for once.
  /// Returns the device times of the replays in microseconds, the cost of an empty replay not yet
  /// subtracted. What a call did wrong is thrown, and then the batch has no times.
  virtual std::vector<double> replay_batch_us(std::span<const Replay> batch) = 0;
  /// A batch of one.
  double replay_us(Recorded& recorded, const Preparation& preparation) {
    const Replay replay{&recorded, preparation, nullptr};
    return replay_batch_us({&replay, 1}).front();
  }
  /// The fixed cost of a replay in microseconds: median over replays of a graph with one empty
  /// kernel (CPU: of an empty function), measured as replay_batch_us measures.
  virtual double empty_replay_us(Repeats repeats) = 0;
  /// Best plain streaming read of so many bytes, cold cache, timed in the same way, the cost of an
  /// empty replay not yet subtracted: the median of the fastest of several read kernels.
  virtual double streaming_read_us(std::size_t bytes, Repeats repeats) = 0;

  /// FP64 reference: ref[i * n + j] = sum over k of x[i, k] * w[j, k], w the first n rows of a
  /// matrix given as the executor's buffer. x: m x k BF16. Returns m * n doubles on the host.
  virtual std::vector<double> reference(const Buffer& x, const Buffer& w, DType w_dtype,
                                        std::int64_t m, std::int64_t n, std::int64_t k) = 0;
};

/// threads 0: all hardware threads. flush_bytes: what is read before every replay; 0: 4x the
/// last-level cache, as the rules ask (tests take less).
std::unique_ptr<Executor> make_cpu_executor(int threads = 0, std::size_t flush_bytes = 0);
/// Throws Error(unsupported) in a build without CUDA or on a machine without a usable GPU.
std::unique_ptr<Executor> make_cuda_executor(int cuda_device = 0);
/// Number of usable CUDA devices; 0 in a build without CUDA.
int cuda_device_count();

}  // namespace slimgemm::judge
