// SPDX-License-Identifier: Apache-2.0
// The host as the machine to measure on: a recorded call is the function itself, a replay calls it.
#include "judge/executor.hpp"
#include "judge/host_facts.hpp"
#include "judge/host_reference.hpp"
#include "judge/statistics.hpp"
#include "support/aligned_buffer.hpp"
#include "support/parallel.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <limits>

namespace slimgemm::judge {
namespace {

constexpr std::size_t flush_caches = 4;  // bytes read before a replay, in last-level caches

class CpuBuffer final : public Buffer {
 public:
  explicit CpuBuffer(std::size_t bytes) : memory_(bytes) {}
  [[nodiscard]] void* data() const override { return const_cast<std::byte*>(memory_.data()); }
  [[nodiscard]] std::size_t size_bytes() const override { return memory_.size(); }

 private:
  AlignedBuffer memory_;
};

struct CpuRecorded final : Recorded {
  explicit CpuRecorded(std::function<void(void*)> function) : call(std::move(function)) {}
  std::function<void(void*)> call;
};

// Reads a range with eight running sums; their total makes the reads needed.
std::uint64_t read_words(const std::uint64_t* words, std::size_t count,
                         std::size_t prefetch_words) {
  constexpr std::size_t step = 16;
  std::uint64_t sums[step] = {};
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    if (prefetch_words > 0) {
      __builtin_prefetch(words + i + prefetch_words, 0, 0);
      __builtin_prefetch(words + i + prefetch_words + step / 2, 0, 0);
    }
    for (std::size_t lane = 0; lane < step; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t total = 0;
  for (; i < count; ++i) total += words[i];
  for (const std::uint64_t sum : sums) total += sum;
  return total;
}

// One way of reading memory: how finely it is dealt out to the threads, and how far ahead it is
// asked for.
struct ReadVariant {
  std::size_t grain_bytes;  // 0: one contiguous part a thread
  std::size_t prefetch_bytes;
};
constexpr ReadVariant read_variants[] = {{0, 0}, {std::size_t{64} << 10, 0}, {0, 2048}};

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(int threads, std::size_t flush_bytes)
      : threads_(resolve_threads(threads)), flush_(flush_bytes) {
    std::memset(flush_.data(), 1, flush_.size());  // else every page is the kernel's zero page
  }

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> describe() const override {
    Facts facts = {{"device", cpu_model()}, {"threads", std::to_string(threads_)}};
    for (auto& fact : host_facts()) facts.push_back(std::move(fact));
    facts.emplace_back("flush_bytes", std::to_string(flush_.size()));
    return facts;
  }
  [[nodiscard]] bool is_cuda() const override { return false; }
  [[nodiscard]] int cuda_device() const override { return -1; }

  std::unique_ptr<Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<CpuBuffer>(bytes);
  }
  void upload(Buffer& to, const void* from, std::size_t bytes) override {
    require_range(to, 0, bytes);
    std::memcpy(to.data(), from, bytes);
  }
  void download(void* to, const Buffer& from, std::size_t offset, std::size_t bytes) override {
    require_range(from, offset, bytes);
    std::memcpy(to, static_cast<const std::byte*>(from.data()) + offset, bytes);
  }

  std::unique_ptr<Recorded> record(const std::function<void(void*)>& call) override {
    call(nullptr);
    return std::make_unique<CpuRecorded>(call);
  }

  // There is no queue to put a batch into: one replay after the other.
  std::vector<double> replay_batch_us(std::span<const Replay> batch) override {
    std::vector<double> times_us;
    for (const Replay& replay : batch) times_us.push_back(replay_now_us(replay));
    return times_us;
  }

  double empty_replay_us(Repeats repeats) override {
    CpuRecorded empty([](void*) {});
    std::vector<double> times(static_cast<std::size_t>(repeats.count));
    for (double& time_us : times) time_us = replay_us(empty, {});
    return median(times);
  }

  double streaming_read_us(std::size_t bytes, Repeats repeats) override {
    const std::size_t words = (bytes + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t);
    if (stream_ == nullptr || stream_->size() < words * sizeof(std::uint64_t)) {
      stream_ = std::make_unique<AlignedBuffer>(words * sizeof(std::uint64_t));
      std::memset(stream_->data(), 1, stream_->size());
    }
    double best = std::numeric_limits<double>::infinity();
    for (const ReadVariant& variant : read_variants) {
      std::vector<double> times(static_cast<std::size_t>(repeats.count));
      for (double& time_us : times) {
        time_us = timed_cold_us([&] { read(stream_->data(), words, variant); });
      }
      best = std::min(best, median(times));
    }
    return best;
  }

  std::vector<double> reference(const Buffer& x, const Buffer& w, DType w_dtype, std::int64_t m,
                                std::int64_t n, std::int64_t k) override {
    require_range(x, 0, static_cast<std::size_t>(m * k * 2));
    require_range(w, 0, static_cast<std::size_t>(n * k * slimgemm::size_bytes(w_dtype)));
    return host_reference(static_cast<const std::uint16_t*>(x.data()), w.data(), w_dtype, m, n, k,
                          threads_);
  }

 private:
  static void require_range(const Buffer& buffer, std::size_t offset, std::size_t bytes) {
    if (offset > buffer.size_bytes() || bytes > buffer.size_bytes() - offset) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} bytes at offset {} do not lie in a buffer of {} bytes", bytes,
                              offset, buffer.size_bytes()));
    }
  }

  double replay_now_us(const Replay& replay) {
    const Preparation& preparation = replay.preparation;
    if (preparation.x_source != nullptr && preparation.x != nullptr) {
      std::memcpy(preparation.x->data(), preparation.x_source->data(), preparation.x_bytes);
    }
    if (preparation.out != nullptr) {
      std::memset(preparation.out->data(), poison_byte, preparation.out->size_bytes());
    }
    const auto& call = static_cast<CpuRecorded&>(*replay.recorded).call;
    const double time_us = timed_cold_us([&] { call(nullptr); });
    if (preparation.out != nullptr && replay.out_copy != nullptr) {
      const std::size_t bytes = preparation.out->size_bytes();
      require_range(*replay.out_copy, 0, bytes);
      std::memcpy(replay.out_copy->data(), preparation.out->data(), bytes);
    }
    return time_us;
  }

  void read(const std::byte* memory, std::size_t words, const ReadVariant& variant) {
    const auto* first = reinterpret_cast<const std::uint64_t*>(memory);
    const std::size_t grain =
        variant.grain_bytes == 0
            ? (words + static_cast<std::size_t>(threads_) - 1) / static_cast<std::size_t>(threads_)
            : variant.grain_bytes / sizeof(std::uint64_t);
    parallel_for(static_cast<std::int64_t>(words), static_cast<std::int64_t>(grain), threads_,
                 [&](std::int64_t begin, std::int64_t end) {
                   sink_ += read_words(first + begin, static_cast<std::size_t>(end - begin),
                                       variant.prefetch_bytes / sizeof(std::uint64_t));
                 });
  }

  template <typename Work>
  double timed_cold_us(const Work& work) {
    read(flush_.data(), flush_.size() / sizeof(std::uint64_t), read_variants[0]);
    const auto start = std::chrono::steady_clock::now();
    work();
    const auto stop = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(stop - start).count();
  }

  int threads_;
  AlignedBuffer flush_;
  std::unique_ptr<AlignedBuffer> stream_;
  std::atomic<std::uint64_t> sink_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(int threads, std::size_t flush_bytes) {
  if (flush_bytes == 0) flush_bytes = flush_caches * last_level_cache_bytes();
  return std::make_unique<CpuExecutor>(threads, flush_bytes);
}

}  // namespace slimgemm::judge
