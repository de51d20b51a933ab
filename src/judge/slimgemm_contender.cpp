// SPDX-License-Identifier: Apache-2.0
// SlimGEMM itself, through its public API only.
#include "judge/contender.hpp"

#include <slimgemm/slimgemm.hpp>

#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace slimgemm::judge {
namespace {

PackedMatrix pack_matrix(const WeightMatrix& w, const PackOptions& options, bool on_device) {
  const auto count = static_cast<std::size_t>(w.n * w.k);
  if (w.dtype == DType::f32) {
    return pack(std::span(static_cast<const float*>(w.host), count), w.n, w.k, options);
  }
  if (on_device) {
    return pack_cuda(static_cast<const std::uint16_t*>(w.device), w.n, w.k, options);
  }
  return pack(std::span(static_cast<const std::uint16_t*>(w.host), count), w.n, w.k, options);
}

class SlimgemmContender final : public Contender {
 public:
  SlimgemmContender(int cuda_device, int cpu_threads, LayerTable table, bool batch_invariant)
      : table_(std::move(table)), whole_(table_.size()), slice_(table_.size()) {
    options_.device = cuda_device < 0 ? slimgemm::Device::cpu : slimgemm::Device::cuda;
    options_.cuda_device = cuda_device < 0 ? 0 : cuda_device;
    options_.cpu_threads = cpu_threads;
    options_.batch_invariant = batch_invariant;
  }

  [[nodiscard]] std::string name() const override {
    return options_.batch_invariant ? "slimgemm, batch invariant" : "slimgemm";
  }

  void prepare(const WeightSet& weights) override {
    PackOptions pack_options;
    pack_options.threads = options_.cpu_threads;
    for (std::size_t i = 0; i < table_.size(); ++i) {
      const PackedMatrix packed =
          pack_matrix(weights.at(i), pack_options, options_.device == slimgemm::Device::cuda);
      whole_[i].emplace(packed, options_);
      // A slice is a view of the same packed weights.
      if (table_[i].slice_max_m > 0) slice_[i].emplace(whole_[i]->rows(0, table_[i].slice_n));
    }
  }

  void run(Layer layer, const void* x, std::int64_t m, void* out, void* stream) override {
    serving(layer, m).run(static_cast<const std::uint16_t*>(x), m, out, stream);
  }

  [[nodiscard]] std::int64_t weight_bytes(Layer layer, std::int64_t m) const override {
    return serving(layer, m).plan(m).weight_bytes;
  }

  [[nodiscard]] std::string describe(Layer layer, std::int64_t m) const override {
    const Plan plan = serving(layer, m).plan(m);
    return plan.kernel + ": " + plan.reason;
  }

 private:
  [[nodiscard]] const Linear& serving(Layer layer, std::int64_t m) const {
    const auto index = static_cast<std::size_t>(layer);
    const bool sliced = m <= table_.at(index).slice_max_m;
    return sliced ? slice_[index].value() : whole_[index].value();
  }

  LayerTable table_;
  LinearOptions options_;
  std::vector<std::optional<Linear>> whole_;
  std::vector<std::optional<Linear>> slice_;
};

}  // namespace

std::unique_ptr<Contender> make_slimgemm_contender(int cuda_device, int cpu_threads,
                                                   const LayerTable& table, bool batch_invariant) {
  return std::make_unique<SlimgemmContender>(cuda_device, cpu_threads, table, batch_invariant);
}

}  // namespace slimgemm::judge
