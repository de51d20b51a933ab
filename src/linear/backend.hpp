// SPDX-License-Identifier: Apache-2.0
// What a backend is to Linear: weights made ready once, then run any number of times.
#pragma once

#include <slimgemm/device_image.hpp>
#include <slimgemm/linear.hpp>

#include <cstdint>
#include <memory>

namespace slimgemm {

/// One call, arguments already checked by Linear: m >= 1, 0 <= row_begin < row_end <= N, row_begin
/// a multiple of 16, x_row_stride >= K.
struct RunArgs {
  const std::uint16_t* x = nullptr;
  std::int64_t m = 0;
  std::int64_t x_row_stride = 0;  // elements
  void* out = nullptr;            // m x (row_end - row_begin), contiguous
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  void* stream = nullptr;
};

class Linear::Backend {
 public:
  Backend(std::int64_t n, std::int64_t k, DType dtype, Device device)
      : n(n), k(k), dtype(dtype), device(device) {}
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  virtual void run(const RunArgs& args) const = 0;
  [[nodiscard]] virtual Plan plan(std::int64_t rows, std::int64_t m) const = 0;

  const std::int64_t n;
  const std::int64_t k;
  const DType dtype;
  const Device device;
};

std::shared_ptr<const Linear::Backend> make_cpu_backend(const PackedMatrix& weights,
                                                        const LinearOptions& options);
// Throws Error(unsupported) in a build without CUDA.
std::shared_ptr<const Linear::Backend> make_cuda_backend(const PackedMatrix& weights,
                                                         const LinearOptions& options);
std::shared_ptr<const Linear::Backend> make_cuda_view(const ImageLayout& layout, const void* image,
                                                      const LinearOptions& options);

}  // namespace slimgemm
