// SPDX-License-Identifier: Apache-2.0
// An outside contender: a shared library with the C interface of slimgemm/contender.h.
#include "judge/contender.hpp"

#include <slimgemm/contender.h>
#include <slimgemm/error.hpp>

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <utility>

namespace slimgemm::judge {
namespace {

constexpr const char* entry_point = "slimgemm_contender_get";

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("contender {}: {}", path, what));
}

// A loaded library; closed when the last copy goes.
std::shared_ptr<void> open_library(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    refuse(path, "no such file. Give the path of a shared library");
  }
  // A bare name would be looked up in the system's library folders.
  const std::string absolute = std::filesystem::absolute(path).string();
  void* handle = dlopen(absolute.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) refuse(path, fmt::format("cannot be loaded: {}", dlerror()));
  return {handle, [](void* library) { dlclose(library); }};
}

class LoadedContender final : public Contender {
 public:
  LoadedContender(std::string path, int cuda_device)
      : path_(std::move(path)), cuda_device_(cuda_device), library_(open_library(path_)) {
    using Get = const slimgemm_contender* (*)();
    const auto get = reinterpret_cast<Get>(dlsym(library_.get(), entry_point));
    if (get == nullptr) refuse(path_, fmt::format("does not export {}()", entry_point));
    api_ = get();
    if (api_ == nullptr) refuse(path_, fmt::format("{}() returned NULL", entry_point));
    if (api_->abi != SLIMGEMM_CONTENDER_ABI) {
      refuse(path_, fmt::format("has ABI {}, this judge needs {}. Build it against this version's "
                                "slimgemm/contender.h",
                                api_->abi, SLIMGEMM_CONTENDER_ABI));
    }
    if (api_->name == nullptr) refuse(path_, "its name is NULL");
    if (api_->prepare == nullptr) refuse(path_, "its prepare is NULL");
    if (api_->run == nullptr) refuse(path_, "its run is NULL");
  }
  LoadedContender(const LoadedContender&) = delete;
  LoadedContender& operator=(const LoadedContender&) = delete;
  ~LoadedContender() override {
    if (prepared_ && api_->destroy != nullptr) api_->destroy(state_);
  }

  [[nodiscard]] std::string name() const override { return api_->name; }

  void prepare(const WeightSet& weights) override {
    std::array<slimgemm_contender_matrix, layer_count> matrices{};
    if (weights.size() != matrices.size()) {
      refuse(path_, fmt::format("takes the {} layers of slimgemm/contender.h, not {}",
                                matrices.size(), weights.size()));
    }
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      matrices[i] = {weights[i].n, weights[i].k, static_cast<std::int32_t>(weights[i].dtype),
                     weights[i].host, weights[i].device};
      dense_row_bytes_[i] = weights[i].k * size_bytes(weights[i].dtype);
      rows_[i] = weights[i].n;
    }
    Message message{};
    const int status =
        api_->prepare(matrices.data(), cuda_device_, &state_, message.data(), message.size());
    if (status != 0) fail("prepare", status, message);
    prepared_ = true;
  }

  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    Message message{};
    const int status = api_->run(state_, static_cast<std::int32_t>(layer), x, m, out, stream,
                                 message.data(), message.size());
    if (status != 0) fail("run", status, message);
  }

  [[nodiscard]] std::int64_t weight_bytes(Layer layer, std::int64_t m) const override {
    const auto index = static_cast<std::size_t>(layer);
    if (api_->weight_bytes == nullptr) {
      const bool sliced = m <= info(layer).slice_max_m;
      return (sliced ? info(layer).slice_n : rows_[index]) * dense_row_bytes_[index];
    }
    const std::int64_t bytes = api_->weight_bytes(state_, static_cast<std::int32_t>(layer), m);
    if (bytes <= 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: weight_bytes({}, {}) returned {}; it must be positive",
                              api_->name, info(layer).name, m, bytes));
    }
    return bytes;
  }

 private:
  using Message = std::array<char, 512>;

  [[noreturn]] void fail(const char* what, int status, Message& message) const {
    message.back() = '\0';
    throw Error(ErrorCode::device_error,
                fmt::format("{}: {} returned {}: {}", api_->name, what, status,
                            message[0] == '\0' ? "no message" : message.data()));
  }

  std::string path_;
  int cuda_device_;
  std::shared_ptr<void> library_;
  const slimgemm_contender* api_ = nullptr;
  void* state_ = nullptr;
  bool prepared_ = false;
  std::array<std::int64_t, layer_count> rows_{};
  std::array<std::int64_t, layer_count> dense_row_bytes_{};
};

}  // namespace

std::unique_ptr<Contender> load_contender(const std::string& path, int cuda_device) {
  return std::make_unique<LoadedContender>(path, cuda_device);
}

}  // namespace slimgemm::judge
