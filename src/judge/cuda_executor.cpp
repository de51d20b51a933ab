// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_clock.hpp"
#include "judge/cuda_kernels.hpp"
#include "judge/cuda_versions.hpp"
#include "judge/executor.hpp"
#include "judge/nvidia_driver.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace slimgemm::judge {
namespace {

// A replay takes about 0.1 ms here, so that medians of many cost next to nothing.
constexpr int algorithm_repeats = 9;
constexpr int min_stream_repeats = 31;

class CudaBuffer final : public Buffer {
 public:
  explicit CudaBuffer(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] void* data() const override { return memory_.data(); }
  [[nodiscard]] std::size_t size_bytes() const override { return memory_.size_bytes(); }

 private:
  DeviceMemory memory_;
};

class RecordedGraph final : public Recorded {
 public:
  explicit RecordedGraph(GraphExec graph) : graph_(std::move(graph)) {}
  [[nodiscard]] cudaGraphExec_t graph() const { return graph_.get(); }

 private:
  GraphExec graph_;
};

void check_fits(const char* what, std::size_t needed, const Buffer& buffer) {
  if (needed <= buffer.size_bytes()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{} takes {} bytes, but the buffer has {}",
                                                       what, needed, buffer.size_bytes()));
}

int device_attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  cuda::check(cudaDeviceGetAttribute(&value, which, device), "cudaDeviceGetAttribute");
  return value;
}

/// The kernels of this build are machine code for sm_90a.
bool is_hopper(int device) {
  int major = 0;
  int minor = 0;
  const bool known =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  return known && major == 9 && minor == 0;
}

/// Throws Error(unsupported) unless `device` exists and can run this build's kernels.
int require_device(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    throw Error(
        ErrorCode::unsupported,
        fmt::format("no CUDA device: cudaGetDeviceCount gave {}; run with --device cpu, or on "
                    "a machine with a Hopper GPU and its driver",
                    status == cudaSuccess ? "0 devices" : cuda::describe(status)));
  }
  if (device < 0 || device >= count) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("no CUDA device {}: this machine has devices 0 to {}", device, count - 1));
  }
  if (!is_hopper(device)) {
    throw Error(ErrorCode::unsupported,
                fmt::format("CUDA device {} has compute capability {}.{}, but the GPU code of this "
                            "build is for 9.0 (Hopper: H100, H200); run with --device cpu",
                            device, device_attribute(cudaDevAttrComputeCapabilityMajor, device),
                            device_attribute(cudaDevAttrComputeCapabilityMinor, device)));
  }
  return device;
}

void copy_on_device(void* to, const void* from, std::size_t bytes, const char* what,
                    cudaStream_t stream) {
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
              std::string("cudaMemcpyAsync of ") + what);
}

void prepare(const Preparation& preparation, cudaStream_t stream) {
  if (preparation.x != nullptr && preparation.x_source != nullptr) {
    copy_on_device(preparation.x->data(), preparation.x_source->data(), preparation.x_bytes, "x",
                   stream);
  }
  if (preparation.out != nullptr) {
    cuda::check(cudaMemsetAsync(preparation.out->data(), poison_byte, preparation.out->size_bytes(),
                                stream),
                "cudaMemsetAsync of out");
  }
}

/// Valid as long as `replay`.
TimedGraph timed_graph(const Replay& replay) {
  const auto* graph = dynamic_cast<const RecordedGraph*>(replay.recorded);
  if (graph == nullptr) {
    throw Error(ErrorCode::invalid_argument, "a replay: not a call that this executor recorded");
  }
  const Preparation& preparation = replay.preparation;
  if (preparation.x != nullptr && preparation.x_source != nullptr) {
    check_fits("x", preparation.x_bytes, *preparation.x);
    check_fits("x", preparation.x_bytes, *preparation.x_source);
  }
  TimedGraph timed;
  timed.graph = graph->graph();
  timed.before = [&preparation](cudaStream_t stream) { prepare(preparation, stream); };
  if (preparation.out != nullptr && replay.out_copy != nullptr) {
    check_fits("the copy of out", preparation.out->size_bytes(), *replay.out_copy);
    timed.after = [&replay](cudaStream_t stream) {
      const Buffer& out = *replay.preparation.out;
      copy_on_device(replay.out_copy->data(), out.data(), out.size_bytes(), "out", stream);
    };
  }
  return timed;
}

class CudaExecutor final : public Executor {
 public:
  explicit CudaExecutor(int device) : clock_(require_device(device)) {}

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> describe() const override;
  [[nodiscard]] bool is_cuda() const override { return true; }
  [[nodiscard]] int cuda_device() const override { return clock_.device(); }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    activate();
    return std::make_unique<CudaBuffer>(bytes);
  }
  void upload(Buffer& to, const void* from, std::size_t bytes) override;
  void download(void* to, const Buffer& from, std::size_t offset, std::size_t bytes) override;
  std::unique_ptr<Recorded> record(const std::function<void(void* stream)>& call) override;
  std::vector<double> replay_batch_us(std::span<const Replay> batch) override;
  double empty_replay_us(Repeats repeats) override;
  double streaming_read_us(std::size_t bytes, Repeats repeats) override;
  std::vector<double> reference(const Buffer& x, const Buffer& w, DType w_dtype, std::int64_t m,
                                std::int64_t n, std::int64_t k) override;

 private:
  void activate() const { cuda::check(cudaSetDevice(clock_.device()), "cudaSetDevice"); }
  void synchronise(const char* after) const {
    cuda::check(cudaStreamSynchronize(clock_.stream()),
                std::string("cudaStreamSynchronize after ") + after);
  }
  GraphExec record_stream_read(int variant, std::size_t bytes);

  ReplayClock clock_;
  GraphExec empty_graph_;
  DeviceMemory stream_data_;
  std::map<std::pair<std::size_t, int>, double> streaming_us_;  // by bytes and replays queued
};

std::vector<std::pair<std::string, std::string>> CudaExecutor::describe() const {
  activate();
  const int device = clock_.device();
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  int runtime = 0;
  int driver_cuda = 0;
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  cuda::check(cudaDriverGetVersion(&driver_cuda), "cudaDriverGetVersion");
  const auto cuda_version = [](int version) {
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  };
  return {
      {"device", properties.name},
      {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
      {"sm_count", std::to_string(clock_.sm_count())},
      {"l2_bytes", std::to_string(clock_.l2_bytes())},
      {"memory_bytes", std::to_string(properties.totalGlobalMem)},
      {"sm_clock_khz", std::to_string(device_attribute(cudaDevAttrClockRate, device))},
      {"memory_clock_khz", std::to_string(device_attribute(cudaDevAttrMemoryClockRate, device))},
      {"driver", driver_version()},
      {"driver_cuda", cuda_version(driver_cuda)},
      {"cuda_runtime", cuda_version(runtime)},
      {"cublas", blas_version()},
      {"flush_bytes", std::to_string(clock_.flush_bytes())},
      {"late_replays", std::to_string(clock_.late_replays())},
  };
}

void CudaExecutor::upload(Buffer& to, const void* from, std::size_t bytes) {
  check_fits("the upload", bytes, to);
  activate();
  cuda::check(cudaMemcpyAsync(to.data(), from, bytes, cudaMemcpyHostToDevice, clock_.stream()),
              "cudaMemcpyAsync of " + std::to_string(bytes) + " bytes to the device");
  synchronise("an upload");
}

void CudaExecutor::download(void* to, const Buffer& from, std::size_t offset, std::size_t bytes) {
  check_fits("the download", offset + bytes, from);
  activate();
  cuda::check(cudaMemcpyAsync(to, static_cast<const char*>(from.data()) + offset, bytes,
                              cudaMemcpyDeviceToHost, clock_.stream()),
              "cudaMemcpyAsync of " + std::to_string(bytes) + " bytes from the device");
  synchronise("a download");
}

std::unique_ptr<Recorded> CudaExecutor::record(const std::function<void(void* stream)>& call) {
  activate();
  call(clock_.stream());
  synchronise("the first, unrecorded call");
  return std::make_unique<RecordedGraph>(
      capture(clock_.stream(), [&](cudaStream_t stream) { call(stream); }));
}

std::vector<double> CudaExecutor::replay_batch_us(std::span<const Replay> batch) {
  std::vector<TimedGraph> graphs;
  for (const Replay& replay : batch) graphs.push_back(timed_graph(replay));
  activate();
  return clock_.batch_us(graphs);
}

double CudaExecutor::empty_replay_us(Repeats repeats) {
  activate();
  if (!empty_graph_) empty_graph_ = capture(clock_.stream(), launch_empty);
  return clock_.median_us(empty_graph_.get(), repeats);
}

GraphExec CudaExecutor::record_stream_read(int variant, std::size_t bytes) {
  const auto read = [&](cudaStream_t stream) {
    launch_stream_read(variant, stream_data_.data(), bytes, clock_.sink(), clock_.sm_count(),
                       stream);
  };
  read(clock_.stream());
  synchronise("a streaming read");
  return capture(clock_.stream(), read);
}

double CudaExecutor::streaming_read_us(std::size_t bytes, Repeats repeats) {
  constexpr std::size_t vector_bytes = 16;
  const std::size_t read_bytes =
      std::max((bytes + vector_bytes - 1) / vector_bytes * vector_bytes, vector_bytes);
  const std::pair key{read_bytes, repeats.queued};
  if (const auto known = streaming_us_.find(key); known != streaming_us_.end()) {
    return known->second;
  }
  activate();
  if (stream_data_.size_bytes() < read_bytes) {
    stream_data_ = DeviceMemory();
    stream_data_ = DeviceMemory(read_bytes);
    launch_fill_bf16(stream_data_.data(), static_cast<std::int64_t>(read_bytes / 2), 1,
                     clock_.stream());
    synchronise("filling the buffer of the streaming reads");
  }

  GraphExec fastest;
  double fastest_us = 0;
  for (int variant = 0; variant < stream_read_variants(); ++variant) {
    GraphExec graph = record_stream_read(variant, read_bytes);
    const double time_us = clock_.median_us(graph.get(), {algorithm_repeats, repeats.queued});
    if (!fastest || time_us < fastest_us) {
      fastest = std::move(graph);
      fastest_us = time_us;
    }
  }
  const Repeats final_repeats{std::max(repeats.count, min_stream_repeats), repeats.queued};
  return streaming_us_[key] = clock_.median_us(fastest.get(), final_repeats);
}

std::vector<double> CudaExecutor::reference(const Buffer& x, const Buffer& w, DType w_dtype,
                                            std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto elements = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  };
  check_fits("x", elements(m, k) * 2, x);
  check_fits("w", elements(n, k) * static_cast<std::size_t>(size_bytes(w_dtype)), w);
  activate();
  std::vector<double> result(elements(m, n));
  const DeviceMemory out(result.size() * sizeof(double));
  launch_reference(x.data(), w.data(), w_dtype, out.as<double>(), m, n, k, clock_.stream());
  cuda::check(cudaMemcpyAsync(result.data(), out.data(), out.size_bytes(), cudaMemcpyDeviceToHost,
                              clock_.stream()),
              "cudaMemcpyAsync of the reference");
  synchronise("the reference");
  return result;
}

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(int cuda_device) {
  return std::make_unique<CudaExecutor>(cuda_device);
}

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  int usable = 0;
  for (int device = 0; device < count; ++device) usable += is_hopper(device) ? 1 : 0;
  static_cast<void>(cudaGetLastError());
  return usable;
}

}  // namespace slimgemm::judge
