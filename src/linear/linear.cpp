// SPDX-License-Identifier: Apache-2.0
// Linear: checks arguments by name and value, then hands the call to its backend.
#include <slimgemm/linear.hpp>

#include "format/layout.hpp"
#include "linear/backend.hpp"
#include "support/refuse.hpp"

#include <string>

namespace slimgemm {
namespace {

std::shared_ptr<const Linear::Backend> make_backend(const PackedMatrix& weights,
                                                    const LinearOptions& options) {
  switch (options.device) {
    case Device::cpu:
      return make_cpu_backend(weights, options);
    case Device::cuda:
      return make_cuda_backend(weights, options);
  }
  refuse_argument("device is " + std::to_string(static_cast<std::uint32_t>(options.device)) +
                  ": it must be Device::cpu (1) or Device::cuda (2)");
}

void check_m(std::int64_t m) {
  if (m < 0 || m > max_dimension) {
    refuse_argument("m is " + std::to_string(m) + ": the number of tokens must be 0 to " +
                    std::to_string(max_dimension));
  }
}

}  // namespace

Linear::Linear(const PackedMatrix& weights, const LinearOptions& options)
    : backend_(make_backend(weights, options)), row_begin_(0), row_end_(backend_->n) {}

Linear linear_over_image(const ImageLayout& layout, const void* image,
                         const LinearOptions& options) {
  if (options.device != Device::cuda) {
    refuse_argument("options.device is " +
                    std::to_string(static_cast<std::uint32_t>(options.device)) +
                    ": an image is in the memory of a GPU, Device::cuda (2)");
  }
  if (image == nullptr || reinterpret_cast<std::uintptr_t>(image) % image_alignment != 0) {
    refuse_argument("image is null or not aligned to " + std::to_string(image_alignment) +
                    " bytes");
  }
  static_cast<void>(layout.size_bytes());  // refuses a layout that is none
  return {make_cuda_view(layout, image, options), 0, layout.n};
}

Linear Linear::rows(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || end > n() || begin >= end) {
    refuse_argument("rows [" + std::to_string(begin) + ", " + std::to_string(end) +
                    "): the range must not be empty and must lie in [0, " + std::to_string(n()) +
                    ")");
  }
  if (begin % format::tile_rows != 0) {
    refuse_argument("rows begin at " + std::to_string(begin) +
                    ": a slice must begin at a multiple of " + std::to_string(format::tile_rows));
  }
  return Linear(backend_, row_begin_ + begin, row_begin_ + end);
}

std::int64_t Linear::n() const noexcept { return row_end_ - row_begin_; }
std::int64_t Linear::k() const noexcept { return backend_->k; }
DType Linear::out_dtype() const noexcept { return backend_->dtype; }
Device Linear::device() const noexcept { return backend_->device; }

void Linear::run(const std::uint16_t* x, std::int64_t m, void* out, void* stream,
                 std::int64_t x_row_stride) const {
  check_m(m);
  if (m == 0) return;
  if (x == nullptr) refuse_argument("x is null: it must point to m x K BF16 values");
  if (out == nullptr) refuse_argument("out is null: it must have room for m x N values");
  if (x_row_stride == 0) x_row_stride = k();
  if (x_row_stride < k() || x_row_stride > max_dimension) {
    refuse_argument("x_row_stride is " + std::to_string(x_row_stride) + ": it must be 0 or " +
                    std::to_string(k()) + " (K) to " + std::to_string(max_dimension));
  }
  if (reinterpret_cast<std::uintptr_t>(x) % 2 != 0) {
    refuse_argument("x is not aligned to 2 bytes");
  }
  if (reinterpret_cast<std::uintptr_t>(out) %
      static_cast<std::uintptr_t>(size_bytes(out_dtype()))) {
    refuse_argument("out is not aligned to " + std::to_string(size_bytes(out_dtype())) + " bytes");
  }
  backend_->run({.x = x,
                 .m = m,
                 .x_row_stride = x_row_stride,
                 .out = out,
                 .row_begin = row_begin_,
                 .row_end = row_end_,
                 .stream = stream});
}

Plan Linear::plan(std::int64_t m) const {
  check_m(m);
  return backend_->plan(n(), m);
}

}  // namespace slimgemm
