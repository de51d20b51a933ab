// SPDX-License-Identifier: Apache-2.0
// A machine without a GPU for the search: every instance takes the time that the test gives it.
#pragma once

#include "tune/tune.hpp"

#include <slimgemm/error.hpp>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace slimgemm::tune {

/// What the fake machine did.
struct FakeLog {
  std::vector<std::string> recorded;  ///< instances, in order
  std::vector<std::string> replayed;
  std::vector<RunArgs> calls;
  std::vector<judge::Preparation> preparations;
  std::vector<std::size_t> out_bytes;
  std::string launched;  ///< by the call that is being recorded
};

/// Microseconds of one replay of an instance; may throw, as a device error would.
using FakeTime = std::function<double(const std::string& instance)>;

inline constexpr double fake_empty_us = 4.0;

class FakeBuffer final : public judge::Buffer {
 public:
  explicit FakeBuffer(std::size_t bytes) : bytes_(bytes) {}
  [[nodiscard]] void* data() const override { return const_cast<char*>(bytes_.data()); }
  [[nodiscard]] std::size_t size_bytes() const override { return bytes_.size(); }

 private:
  std::vector<char> bytes_;
};

struct FakeRecorded final : judge::Recorded {
  explicit FakeRecorded(std::string name) : instance(std::move(name)) {}
  std::string instance;
};

class FakeExecutor final : public judge::Executor {
 public:
  FakeExecutor(std::shared_ptr<FakeLog> log, FakeTime time)
      : log_(std::move(log)), time_(std::move(time)) {}

  [[nodiscard]] std::vector<std::pair<std::string, std::string>> describe() const override {
    return {{"device", "Fake GPU"}};
  }
  [[nodiscard]] bool is_cuda() const override { return true; }
  [[nodiscard]] int cuda_device() const override { return 0; }
  std::unique_ptr<judge::Buffer> allocate(std::size_t bytes) override {
    return std::make_unique<FakeBuffer>(bytes);
  }
  void upload(judge::Buffer& to, const void* from, std::size_t bytes) override {
    std::memcpy(to.data(), from, bytes);
  }
  void download(void* to, const judge::Buffer& from, std::size_t offset,
                std::size_t bytes) override {
    std::memcpy(to, static_cast<const char*>(from.data()) + offset, bytes);
  }
  std::unique_ptr<judge::Recorded> record(const std::function<void(void*)>& call) override {
    call(nullptr);
    log_->recorded.push_back(log_->launched);
    return std::make_unique<FakeRecorded>(log_->launched);
  }
  std::vector<double> replay_batch_us(std::span<const judge::Replay> batch) override {
    std::vector<double> times_us;
    for (const auto& [recorded, preparation, out_copy] : batch) {
      const std::string& instance = dynamic_cast<FakeRecorded&>(*recorded).instance;
      log_->replayed.push_back(instance);
      log_->preparations.push_back(preparation);
      log_->out_bytes.push_back(preparation.out == nullptr ? 0 : preparation.out->size_bytes());
      times_us.push_back(fake_empty_us + time_(instance));
    }
    return times_us;
  }
  double empty_replay_us(judge::Repeats) override { return fake_empty_us; }
  double streaming_read_us(std::size_t, judge::Repeats) override { return 0; }
  std::vector<double> reference(const judge::Buffer&, const judge::Buffer&, DType, std::int64_t,
                                std::int64_t, std::int64_t) override {
    return {};
  }

 private:
  std::shared_ptr<FakeLog> log_;
  FakeTime time_;
};

class FakeMatrix final : public Matrix {
 public:
  FakeMatrix(std::shared_ptr<FakeLog> log, Job job) : log_(std::move(log)), job_(std::move(job)) {}
  [[nodiscard]] const plan::GpuFacts& gpu() const override { return gpu_; }
  [[nodiscard]] plan::Problem problem(std::int64_t rows, std::int64_t m) const override {
    return {.rows = rows, .k = job_.layer.k, .m = m, .encoding = job_.encoding};
  }
  void run(const plan::KernelPlan& plan, const RunArgs& args) const override {
    log_->launched = plan::instance_name(plan.instance);
    log_->calls.push_back(args);
    if (log_->launched == fails_to_run) throw Error(ErrorCode::device_error, "no such kernel");
  }
  std::string fails_to_run;

 private:
  std::shared_ptr<FakeLog> log_;
  Job job_;
  plan::GpuFacts gpu_;
};

/// fails_to_run: an instance whose launch throws.
inline Machine fake_machine(const std::shared_ptr<FakeLog>& log, FakeTime time,
                            const std::string& fails_to_run = "") {
  Machine machine;
  machine.executor = std::make_unique<FakeExecutor>(log, std::move(time));
  machine.make_matrix = [log, fails_to_run](const Job& job) {
    auto matrix = std::make_unique<FakeMatrix>(log, job);
    matrix->fails_to_run = fails_to_run;
    return matrix;
  };
  return machine;
}

/// Times that follow the cost model's estimates, all but those given.
inline FakeTime by_estimate(const plan::Problem& problem,
                            const std::map<std::string, double>& other = {}) {
  std::map<std::string, double> times = other;
  for (const plan::Instance& instance : plan::instances_of(problem.encoding)) {
    times.emplace(plan::instance_name(instance), plan::estimate_us(instance, problem, {}));
  }
  return [times](const std::string& instance) { return times.at(instance); };
}

}  // namespace slimgemm::tune
