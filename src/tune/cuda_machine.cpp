// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_backend.hpp"
#include "judge/inputs.hpp"
#include "tune/tune.hpp"

#include <slimgemm/slimgemm.hpp>

#include <iterator>
#include <random>
#include <span>
#include <vector>

namespace slimgemm::tune {
namespace {

constexpr std::uint64_t weights_seed = 1;

/// Moves all weights into one window, then about `share` of them out of it again: zeros, outliers
/// and subnormals.
void place_exceptions(std::vector<std::uint16_t>& w, double share) {
  constexpr std::uint16_t outside[] = {0x0000, 0x4040, 0x8000, 0x1234, 0xC480, 0x0001};
  std::mt19937_64 random(weights_seed);
  std::bernoulli_distribution is_exception(share);
  for (std::uint16_t& bits : w) {
    bits = static_cast<std::uint16_t>((bits & 0x80FFU) | 0x3C00U);  // exponents 0x78 and 0x79
    if (share > 0 && is_exception(random)) bits = outside[random() % std::size(outside)];
  }
}

PackedMatrix pack_weights(const Job& job, std::optional<double> exception_share) {
  const judge::LayerInfo& layer = job.layer;
  judge::Weights weights = judge::generate_weights(judge::LayerTable{layer}, weights_seed);
  judge::Weights::Matrix& w = weights.matrices[0];
  if (layer.dtype == DType::f32) {
    return pack(std::span<const float>(w.f32), layer.n, layer.k);
  }
  PackOptions options;
  if (job.encoding == Encoding::raw16) {
    options.max_exception_rate = 0;  // one exception makes the matrix raw16
    w.bf16.front() = 0;
  } else if (exception_share) {
    options.max_exception_rate = 1;  // split12 whatever the share
    place_exceptions(w.bf16, *exception_share);
  }
  return pack(std::span<const std::uint16_t>(w.bf16), layer.n, layer.k, options);
}

class CudaMatrix final : public Matrix {
 public:
  CudaMatrix(const PackedMatrix& weights, const LinearOptions& options)
      : holder_(make_cuda_backend(weights, options)),
        backend_(dynamic_cast<const cuda::CudaBackend&>(*holder_)) {}
  [[nodiscard]] const plan::GpuFacts& gpu() const override { return backend_.gpu(); }
  [[nodiscard]] plan::Problem problem(std::int64_t rows, std::int64_t m) const override {
    return backend_.problem(rows, m, true);
  }
  void run(const plan::KernelPlan& plan, const RunArgs& args) const override {
    backend_.run_with(plan, args);
  }

 private:
  std::shared_ptr<const Linear::Backend> holder_;
  const cuda::CudaBackend& backend_;
};

}  // namespace

Machine make_cuda_machine(std::optional<double> exception_share) {
  if (judge::cuda_device_count() == 0) {
    throw Error(ErrorCode::unsupported,
                "tuning needs a Hopper GPU (H100, H200) and its driver: this machine has none that "
                "can be used");
  }
  Machine machine;
  machine.executor = judge::make_cuda_executor();
  machine.make_matrix = [device = machine.executor->cuda_device(),
                         exception_share](const Job& job) -> std::unique_ptr<Matrix> {
    const PackedMatrix packed = pack_weights(job, exception_share);
    if (packed.encoding() != job.encoding) {
      throw Error(ErrorCode::unsupported,
                  std::string("the weights of ") + std::string(job.layer.name) + " became " +
                      name(packed.encoding()) + ", not " + name(job.encoding));
    }
    LinearOptions options;
    options.device = Device::cuda;
    options.cuda_device = device;
    return std::make_unique<CudaMatrix>(packed, options);
  };
  return machine;
}

}  // namespace slimgemm::tune
