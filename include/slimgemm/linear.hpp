// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/packed.hpp>
#include <slimgemm/plan.hpp>

#include <cstdint>
#include <memory>

namespace slimgemm {

struct ImageLayout;

struct LinearOptions {
  Device device = Device::cpu;
  int cuda_device = 0;  ///< CUDA device ordinal
  int cpu_threads = 0;  ///< worker threads of the CPU backend; 0: one for every hardware thread
  /// CUDA: run() as a programmatic dependent launch. The kernel may start while the one before it
  /// in the stream still runs, and reads its first weights then; x and out are touched only after
  /// that one is complete. Helps chains of layers; docs/kernels-decode.md has measurements.
  bool programmatic_launch = false;
  /// A row of out has the same bits whatever m is and whatever the other rows are (for x of one
  /// alignment to 16 bytes). Costs speed: docs/judging.md has measurements.
  bool batch_invariant = false;
};

/// One linear layer without bias, out = x @ W.T, computed from the packed weights.
///
/// Construction copies the packed bytes to where they are used and makes all allocations. run()
/// allocates nothing and synchronises with nothing, so it can be captured into a CUDA graph. A
/// Linear has no mutable state: any number of threads and streams may run it at the same time.
/// Copies and row slices share the weights.
class Linear {
 public:
  /// Errors: unsupported (no such backend in this build, no such device, not a Hopper GPU),
  /// out_of_memory, device_error.
  explicit Linear(const PackedMatrix& weights, const LinearOptions& options = {});

  /// A view of the output features [begin, end): begin must be a multiple of 16.
  /// Errors: invalid_argument.
  [[nodiscard]] Linear rows(std::int64_t begin, std::int64_t end) const;

  [[nodiscard]] std::int64_t n() const noexcept;   ///< output features
  [[nodiscard]] std::int64_t k() const noexcept;   ///< input features
  [[nodiscard]] DType out_dtype() const noexcept;  ///< bf16 for BF16 weights, f32 for FP32
  [[nodiscard]] Device device() const noexcept;

  /// out[i, j] = sum over k of x[i, k] * W[j, k], for i in [0, m), j in [0, n).
  ///
  /// x: m x K BF16 (raw bits), rows x_row_stride elements apart (0: K). Fastest where x and its
  ///    row stride are multiples of 16 bytes; any alignment to 2 bytes is served.
  /// out: m x N of out_dtype(), row-major, contiguous. Every element is written.
  /// m: 0 to 2^31 - 1; 0 does nothing.
  /// stream: a cudaStream_t (CUDA) or nullptr; the CPU backend returns when `out` is complete.
  /// Errors: invalid_argument naming the value; unsupported if a GPU launch can't take so many
  /// tokens (from 2,097,121 on); device_error if the launch failed.
  void run(const std::uint16_t* x, std::int64_t m, void* out, void* stream = nullptr,
           std::int64_t x_row_stride = 0) const;

  /// Which kernel run() would use for m tokens, and why.
  [[nodiscard]] Plan plan(std::int64_t m) const;

  class Backend;

 private:
  friend Linear linear_over_image(const ImageLayout& layout, const void* image,
                                  const LinearOptions& options);
  Linear(std::shared_ptr<const Backend> backend, std::int64_t begin, std::int64_t end)
      : backend_(std::move(backend)), row_begin_(begin), row_end_(end) {}
  std::shared_ptr<const Backend> backend_;
  std::int64_t row_begin_ = 0;
  std::int64_t row_end_ = 0;
};

}  // namespace slimgemm
