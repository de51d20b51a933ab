// SPDX-License-Identifier: Apache-2.0
// Packed, pack() and linear() on arrays in host memory.
#include "bindings.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>

#if SLIMGEMM_HAVE_XXHASH
#define XXH_INLINE_ALL
#include <xxhash.h>
#endif

namespace slimgemm::python {
namespace {

using Array = nb::ndarray<nb::ro, nb::device::cpu, nb::c_contig>;
using OutArray = nb::ndarray<nb::device::cpu, nb::c_contig>;
using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;

std::string text(const nb::dlpack::dtype& dtype) {
  using Code = nb::dlpack::dtype_code;
  const auto code = static_cast<Code>(dtype.code);
  const char* kind = code == Code::Int      ? "int"
                     : code == Code::UInt   ? "uint"
                     : code == Code::Float  ? "float"
                     : code == Code::Bfloat ? "bfloat"
                                            : "dtype code ";
  return kind + std::to_string(dtype.bits);
}

/// The dtype of BF16 values (bfloat16, or uint16 as their raw bits) or FP32 values.
DType dtype_of(const nb::dlpack::dtype& dtype, const char* what) {
  const nb::dlpack::dtype bfloat16{static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat), 16,
                                   1};
  if (dtype == bfloat16 || dtype == nb::dtype<std::uint16_t>()) return DType::bf16;
  if (dtype == nb::dtype<float>()) return DType::f32;
  refuse(std::string(what) + " is " + text(dtype) +
         ": it must be bfloat16, uint16 (raw bits of bfloat16) or float32");
}

/// Fails on what nanobind's own conversion does not see: the shape's value.
void check_shape(const OutArray& out, std::int64_t rows, std::int64_t columns, const char* what) {
  std::int64_t before = 1;
  for (std::size_t i = 0; i + 1 < out.ndim(); ++i)
    before *= static_cast<std::int64_t>(out.shape(i));
  const bool fits = out.ndim() >= 1 && before == rows &&
                    static_cast<std::int64_t>(out.shape(out.ndim() - 1)) == columns;
  if (!fits) {
    refuse(std::string(what) + " has the wrong shape: it must be " + std::to_string(rows) +
           " rows of " + std::to_string(columns));
  }
}

std::unique_ptr<Packed> pack_array(const Array& weight, int threads, double max_exception_rate) {
  if (weight.ndim() != 2) {
    refuse("weight has " + std::to_string(weight.ndim()) + " dimensions: it must have 2, n x k");
  }
  const DType dtype = dtype_of(weight.dtype(), "weight");
  const auto n = static_cast<std::int64_t>(weight.shape(0));
  const auto k = static_cast<std::int64_t>(weight.shape(1));
  const PackOptions options{.threads = threads, .max_exception_rate = max_exception_rate};
  const nb::gil_scoped_release release;
  if (dtype == DType::f32) {
    const std::span w(static_cast<const float*>(weight.data()), weight.size());
    return std::make_unique<Packed>(pack(w, n, k, options));
  }
  const std::span w(static_cast<const std::uint16_t*>(weight.data()), weight.size());
  return std::make_unique<Packed>(pack(w, n, k, options));
}

void unpack_array(const Packed& packed, const OutArray& out, int threads) {
  const PackedMatrix& matrix = packed.matrix();
  check_shape(out, matrix.n(), matrix.k(), "out");
  if (dtype_of(out.dtype(), "out") != matrix.dtype()) {
    refuse("out is " + text(out.dtype()) + ": the weights are " + dtype_name(matrix.dtype()));
  }
  const nb::gil_scoped_release release;
  if (matrix.dtype() == DType::f32) {
    unpack(matrix, std::span(static_cast<float*>(out.data()), out.size()), threads);
  } else {
    unpack(matrix, std::span(static_cast<std::uint16_t*>(out.data()), out.size()), threads);
  }
}

void linear_array(const Array& x, const Packed& packed, const OutArray& out) {
  const PackedMatrix& matrix = packed.matrix();
  if (x.ndim() == 0 || static_cast<std::int64_t>(x.shape(x.ndim() - 1)) != matrix.k()) {
    refuse("the last dimension of x must be k = " + std::to_string(matrix.k()));
  }
  if (dtype_of(x.dtype(), "x") != DType::bf16) {
    refuse("x is float32: activations are bfloat16, or uint16 as their raw bits");
  }
  const std::int64_t m = static_cast<std::int64_t>(x.size()) / matrix.k();
  check_shape(out, m, matrix.n(), "out");
  if (dtype_of(out.dtype(), "out") != matrix.dtype()) {
    refuse("out is " + text(out.dtype()) + ": the result is " + dtype_name(matrix.dtype()));
  }
  const nb::gil_scoped_release release;
  packed.linear().run(static_cast<const std::uint16_t*>(x.data()), m, out.data());
}

/// Packed checkpoints pad a matrix with zero bytes to a multiple of 256 (docs/format.md).
std::span<const std::byte> without_padding(std::span<const std::byte> bytes) {
  constexpr std::size_t total_bytes_at = 88;  // in the header
  constexpr std::size_t alignment = 256;
  std::uint64_t total = 0;
  if (bytes.size() % alignment != 0 || bytes.size() < alignment) return bytes;
  std::memcpy(&total, bytes.data() + total_bytes_at, sizeof(total));
  if (total > bytes.size() || bytes.size() - total >= alignment) return bytes;
  const auto padding = bytes.subspan(total);
  const bool zero =
      std::all_of(padding.begin(), padding.end(), [](auto b) { return b == std::byte{}; });
  return zero ? bytes.first(total) : bytes;
}

std::unique_ptr<Packed> from_bytes(const Bytes& bytes) {
  const nb::gil_scoped_release release;
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  return std::make_unique<Packed>(PackedMatrix::from_bytes(without_padding({data, bytes.size()})));
}

std::unique_ptr<Packed> pack_on_cuda(std::uintptr_t w, std::int64_t n, std::int64_t k,
                                     double max_exception_rate, std::uintptr_t stream) {
  const nb::gil_scoped_release release;
  const PackOptions options{.max_exception_rate = max_exception_rate};
  return std::make_unique<Packed>(
      pack_cuda(as_pointer<const std::uint16_t>(w), n, k, options, as_pointer<void>(stream)));
}

nb::bytes to_bytes(const Packed& packed) {
  const auto bytes = packed.matrix().bytes();
  return nb::bytes(bytes.data(), bytes.size());
}

/// The packed bytes as a torch tensor that shares them and keeps `self` alive.
nb::ndarray<nb::pytorch, std::uint8_t, nb::ndim<1>> torch_bytes(nb::handle self) {
  const auto bytes = nb::cast<const Packed&>(self).matrix().bytes();
  // Torch knows no read-only tensors; the layer that holds this one does not write to it.
  auto* data = const_cast<std::byte*>(bytes.data());
  const std::size_t shape[1] = {bytes.size()};
  return {data, 1, shape, self};
}

std::uint64_t xxh3(const Bytes& bytes) {
#if SLIMGEMM_HAVE_XXHASH
  const nb::gil_scoped_release release;
  return XXH3_64bits(bytes.data(), bytes.size());
#else
  static_cast<void>(bytes);
  throw Error(ErrorCode::unsupported,
              "this build of slimgemm has no checksums: build it where xxhash.h is installed "
              "(libxxhash-dev)");
#endif
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  const auto bytes = nb::cast<const Packed&>(nb::handle(self)).matrix().bytes();
  auto* data = const_cast<std::byte*>(bytes.data());
  return PyBuffer_FillInfo(view, self, data, static_cast<Py_ssize_t>(bytes.size()), 1, flags);
}

PyType_Slot packed_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

std::string repr(const Packed& packed) {
  const PackedMatrix& m = packed.matrix();
  return "Packed(n=" + std::to_string(m.n()) + ", k=" + std::to_string(m.k()) + ", dtype='" +
         dtype_name(m.dtype()) + "', encoding='" + name(m.encoding()) +
         "', nbytes=" + std::to_string(m.bytes().size()) + ")";
}

}  // namespace

const Linear& Packed::linear() const {
  std::call_once(made_, [&] { linear_.emplace(matrix_); });
  return *linear_;
}

void bind_packed(nb::module_& module) {
  nb::class_<Packed>(module, "Packed", nb::type_slots(packed_slots),
                     "A packed n x k weight matrix, immutable: the bytes of docs/format.md. It has "
                     "the buffer protocol, and pickles.")
      .def_prop_ro(
          "n", [](const Packed& p) { return p.matrix().n(); }, "Output features.")
      .def_prop_ro(
          "k", [](const Packed& p) { return p.matrix().k(); }, "Input features.")
      .def_prop_ro(
          "dtype", [](const Packed& p) { return dtype_name(p.matrix().dtype()); },
          "'bfloat16' or 'float32', of the weights and of a layer's result.")
      .def_prop_ro(
          "encoding", [](const Packed& p) { return name(p.matrix().encoding()); },
          "'split12' (12 bits a weight), 'raw16' or 'raw32'.")
      .def_prop_ro(
          "nbytes", [](const Packed& p) { return p.matrix().bytes().size(); },
          "Bytes, header included.")
      .def_prop_ro(
          "exception_count", [](const Packed& p) { return p.matrix().exception_count(); },
          "Weights that do not fit 12 bits and are kept beside them.")
      .def_prop_ro(
          "window_base", [](const Packed& p) { return p.matrix().window_base(); },
          "First biased exponent of the window (split12).")
      .def_prop_ro(
          "bits_per_weight", [](const Packed& p) { return p.matrix().bits_per_weight(); },
          "8 * nbytes / (n * k).")
      .def_static(
          "from_bytes", &from_bytes, nb::arg("data"),
          "Checks and copies packed bytes: any object with the buffer protocol, or a "
          "one-dimensional uint8 array in host memory; zero bytes up to a multiple of 256 may "
          "follow, as in packed checkpoints. Raises ValueError for bytes that "
          "do not follow docs/format.md.")
      .def("tobytes", &to_bytes, "A copy of the packed bytes.")
      .def("__repr__", &repr)
      .def("__getstate__", &to_bytes)
      .def("__setstate__", [](Packed& self, const nb::bytes& state) {
        const auto* data = static_cast<const std::byte*>(state.data());
        new (&self) Packed(PackedMatrix::from_bytes({data, state.size()}));
      });
  module.def("pack", &pack_array, nb::arg("weight"), nb::arg("threads"),
             nb::arg("max_exception_rate"));
  module.def("unpack", &unpack_array, nb::arg("packed"), nb::arg("out").noconvert(),
             nb::arg("threads"));
  module.def("linear", &linear_array, nb::arg("x"), nb::arg("packed"), nb::arg("out").noconvert());
  module.def("pack_cuda", &pack_on_cuda, nb::arg("weight"), nb::arg("n"), nb::arg("k"),
             nb::arg("max_exception_rate"), nb::arg("stream"));
  module.def("torch_bytes", &torch_bytes, nb::arg("packed"));
  module.def("xxh3", &xxh3, nb::arg("data"));
}

}  // namespace slimgemm::python
