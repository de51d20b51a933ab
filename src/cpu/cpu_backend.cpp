// SPDX-License-Identifier: Apache-2.0
// Linear on the CPU: x is arranged once a call in the order of the packed weights, then every
// thread works its way through row tiles. docs/kernels-cpu.md explains the kernels.
#include "cpu/cpu_backend.hpp"

#include "codec/packed_access.hpp"
#include "cpu/kernels.hpp"
#include "cpu/targets.hpp"
#include "cpu/x_range.hpp"
#include "linear/backend.hpp"
#include "support/bf16.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace slimgemm {
namespace {

using cpu::KernelTable;

// Tokens that share one decoding of the weights; bounds the memory for arranged x and sums.
constexpr std::int64_t max_batch_tokens = 128;
// Below so many values of x the calling thread arranges them alone.
constexpr std::int64_t min_parallel_values = 1 << 15;

cpu::Weights view_of(const PackedMatrix& packed) {
  cpu::Weights weights;
  weights.tiles = reinterpret_cast<const std::uint8_t*>(PackedAccess::tiles(packed).data());
  weights.groups = PackedAccess::groups(packed);
  weights.extra_begin = PackedAccess::extra_begin(packed);
  weights.row_tiles = static_cast<std::int64_t>(PackedAccess::row_tiles(packed));
  weights.k_tiles = static_cast<std::int64_t>(PackedAccess::k_tiles(packed));
  weights.k = packed.k();
  weights.window_base = packed.window_base();
  for (const format::ExceptionGroup& group : weights.groups) {
    for (const format::ExceptionEntry& e : group.entries) {
      if (bf16_is_subnormal(e.bits)) weights.has_subnormals = true;
    }
  }
  return weights;
}

std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

class CpuBackend : public Linear::Backend {
 public:
  CpuBackend(const cpu::Target& target, const PackedMatrix& packed, const LinearOptions& options)
      : Backend(packed.n(), packed.k(), packed.dtype(), Device::cpu),
        packed_(packed),
        weights_(view_of(packed)),
        target_(target),
        threads_(resolve_threads(options.cpu_threads)),
        batch_invariant_(options.batch_invariant),
        smallest_exponent_(cpu::smallest_normal_exponent(weights_)) {}

  void run(const RunArgs& args) const override {
    const std::int64_t batches = divide_up(args.m, max_batch_tokens);
    for (std::int64_t i = 0; i < batches; ++i) {
      const std::int64_t begin = args.m * i / batches;
      run_batch(args, begin, args.m * (i + 1) / batches - begin);
    }
  }

  [[nodiscard]] Plan plan(std::int64_t rows, std::int64_t m) const override;

 private:
  [[nodiscard]] const KernelTable& plain_kernels() const {
    return target_.tables->tables[cpu::encoding_index(packed_.encoding())];
  }
  [[nodiscard]] bool wants_dot(std::int64_t tokens) const {
    return !batch_invariant_ && target_.dot != nullptr && tokens <= target_.dot_max_tokens &&
           packed_.encoding() == Encoding::split12;
  }
  void run_batch(const RunArgs& args, std::int64_t first_token, std::int64_t tokens) const;

  const PackedMatrix packed_;  // shares the bytes that weights_ points into
  const cpu::Weights weights_;
  const cpu::Target target_;
  const int threads_;
  const bool batch_invariant_;
  const int smallest_exponent_;
};

void CpuBackend::run_batch(const RunArgs& args, std::int64_t first_token,
                           std::int64_t tokens) const {
  const std::uint16_t* const x = args.x + first_token * args.x_row_stride;
  const bool dot =
      wants_dot(tokens) && cpu::dot_is_exact(x, tokens, args.x_row_stride, k, smallest_exponent_);
  const KernelTable& kernels = dot ? *target_.dot : plain_kernels();

  cpu::Batch batch;
  batch.x = x;
  batch.x_row_stride = args.x_row_stride;
  batch.k = k;
  batch.tokens = tokens;
  batch.blocks = divide_up(tokens, kernels.max_block_tokens);
  batch.arranged = cpu::thread_scratch(cpu::ScratchUse::arranged_x,
                                       kernels.arranged_bytes(weights_.k_tiles, tokens));
  batch.out_row_stride = args.row_end - args.row_begin;
  batch.out =
      static_cast<std::byte*>(args.out) + first_token * batch.out_row_stride * size_bytes(dtype);
  batch.row_begin = args.row_begin;
  batch.row_end = args.row_end;
  batch.panels_only = batch_invariant_;

  const std::int64_t items = kernels.panels(weights_.k_tiles) * batch.blocks;
  parallel_for(items, 1, tokens * k < min_parallel_values ? 1 : threads_,
               [&](std::int64_t begin, std::int64_t end) { kernels.arrange_x(batch, begin, end); });

  const std::int64_t first_tile = args.row_begin / format::tile_rows;
  const std::int64_t tiles = divide_up(args.row_end, format::tile_rows) - first_tile;
  // Whole groups, but no fewer than two ranges a thread.
  const std::int64_t grain =
      batch.blocks == 1 ? 1 : std::clamp<std::int64_t>(tiles / (2 * threads_), 1, cpu::group_tiles);
  parallel_for(tiles, grain, threads_, [&](std::int64_t begin, std::int64_t end) {
    kernels.multiply(weights_, batch, first_tile + begin, first_tile + end);
  });
}

Plan CpuBackend::plan(std::int64_t rows, std::int64_t m) const {
  const std::int64_t batches = std::max<std::int64_t>(1, divide_up(m, max_batch_tokens));
  const std::int64_t tokens = divide_up(m, batches);  // of the largest batch
  const bool dot = wants_dot(tokens);
  const KernelTable& kernels = dot ? *target_.dot : plain_kernels();
  const bool direct = !batch_invariant_ && tokens <= kernels.direct_tokens;
  const std::int64_t block =
      direct ? tokens : divide_up(tokens, divide_up(tokens, kernels.max_block_tokens));

  Plan plan;
  plan.n = rows;
  plan.k = k;
  plan.m = m;
  plan.kernel = std::string("cpu/") + kernels.target + "/" + name(packed_.encoding()) +
                (direct ? "/direct_t" : "/panel_t") + std::to_string(block);
  plan.reason = direct ? "few tokens: weights go from packed bytes through registers"
                       : "panels of weights are decoded once into cache for blocks of up to " +
                             std::to_string(block) + " tokens";
  if (dot) {
    plan.reason += std::string("; ") + plain_kernels().target +
                   " where x holds subnormals, Inf, NaN or values too small for exact products";
  }
  plan.grid_ctas = divide_up(rows, format::tile_rows);
  plan.threads_per_cta = std::min<std::int64_t>(threads_, plan.grid_ctas);
  const std::int64_t tile_bytes = static_cast<std::int64_t>(PackedAccess::tiles(packed_).size()) /
                                  weights_.row_tiles / weights_.k_tiles;
  plan.weight_bytes = plan.grid_ctas * weights_.k_tiles * tile_bytes;
  if (!weights_.groups.empty()) {
    const auto extra = weights_.extra_begin[static_cast<std::size_t>(plan.grid_ctas)];
    plan.weight_bytes +=
        (plan.grid_ctas + extra) * static_cast<std::int64_t>(sizeof(format::ExceptionGroup));
  }
  return plan;
}

}  // namespace

std::shared_ptr<const Linear::Backend> cpu::make_backend_for(const Target& target,
                                                             const PackedMatrix& weights,
                                                             const LinearOptions& options) {
  return std::make_shared<CpuBackend>(target, weights, options);
}

std::shared_ptr<const Linear::Backend> make_cpu_backend(const PackedMatrix& weights,
                                                        const LinearOptions& options) {
  return cpu::make_backend_for(cpu::chosen_target(), weights, options);
}

}  // namespace slimgemm
