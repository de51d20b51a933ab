// SPDX-License-Identifier: Apache-2.0
// Layers for frameworks. A framework's tensor holds the weights (packed bytes on a CPU, a device
// image on a GPU); a call names its layer by that tensor's address. So a traced graph holds no more
// than the tensor, and layers of one shape share one compiled graph.
#include "bindings.hpp"

#include <nanobind/stl/string.h>

#include <charconv>
#include <shared_mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace slimgemm::python {
namespace {

struct Weights {
  Linear linear;
  std::optional<PackedMatrix> packed;  // of a layer on a CPU
  std::optional<ImageLayout> layout;   // of a layer on a GPU
  std::uintptr_t address;
};

// Without a stream: in a process where another library has brought a C++ runtime of its own (the
// kernels that torch.compile makes), a stream of this one can crash in its locale.
std::string hexadecimal(std::uintptr_t value) {
  char digits[2 * sizeof(value)];
  char* const end = std::to_chars(std::begin(digits), std::end(digits), value, 16).ptr;
  return "0x" + std::string(digits, static_cast<std::size_t>(end - digits));
}

// Layers by the address of their weights. Layers may share one (the bytes of one Packed); an entry
// may outlive its memory (a tensor that was taken from its layer), then the last layer is the one.
class Registry {
 public:
  void add(const std::shared_ptr<const Weights>& weights) {
    const std::unique_lock lock(mutex_);
    by_address_[weights->address].push_back(weights);
  }
  void remove(const std::shared_ptr<const Weights>& weights) {
    const std::unique_lock lock(mutex_);
    const auto found = by_address_.find(weights->address);
    if (found == by_address_.end()) return;
    std::erase(found->second, weights);
    if (found->second.empty()) by_address_.erase(found);
  }
  [[nodiscard]] std::shared_ptr<const Weights> find(std::uintptr_t address) const {
    const std::shared_lock lock(mutex_);
    const auto found = by_address_.find(address);
    if (found == by_address_.end()) {
      if (address == 0) {
        throw Error(ErrorCode::invalid_argument,
                    "this layer has no weights yet: fill it with load_state_dict(), "
                    "load_packed_() or update_()");
      }
      throw Error(ErrorCode::invalid_argument,
                  "no PackedLinear holds its weights at address " + hexadecimal(address) +
                      ": the tensor was copied, moved or replaced behind the layer's back. Move "
                      "the layer with layer.to(), and replace weights with layer.update_() or "
                      "load_packed_()");
    }
    return found->second.back();
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<std::uintptr_t, std::vector<std::shared_ptr<const Weights>>> by_address_;
};

// Never destroyed: layers may outlive the module's static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

/// Registers weights for as long as it lives.
class Layer {
 public:
  explicit Layer(Weights weights) : weights_(std::make_shared<const Weights>(std::move(weights))) {
    registry().add(weights_);
  }
  ~Layer() { registry().remove(weights_); }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  [[nodiscard]] const Weights& weights() const { return *weights_; }

 private:
  std::shared_ptr<const Weights> weights_;
};

std::unique_ptr<Layer> make_cpu_layer(const Packed& packed, bool batch_invariant) {
  const auto address = reinterpret_cast<std::uintptr_t>(packed.matrix().bytes().data());
  const Linear linear =
      batch_invariant ? Linear(packed.matrix(), {.batch_invariant = true}) : packed.linear();
  return std::make_unique<Layer>(Weights{linear, packed.matrix(), std::nullopt, address});
}

std::unique_ptr<Layer> make_cuda_layer(const ImageLayout& layout, std::uintptr_t image, int device,
                                       bool programmatic_launch, bool batch_invariant) {
  const LinearOptions options{.device = Device::cuda,
                              .cuda_device = device,
                              .programmatic_launch = programmatic_launch,
                              .batch_invariant = batch_invariant};
  return std::make_unique<Layer>(
      Weights{linear_over_image(layout, as_pointer<const void>(image), options), std::nullopt,
              layout, image});
}

void check_size(const char* what, std::int64_t given, std::int64_t expected) {
  if (given != expected) {
    refuse(std::string(what) + " is " + std::to_string(given) + ": the layer's weights say " +
           std::to_string(expected));
  }
}

/// m tokens of k elements each, x_row_stride apart, to m x n elements of out_itemsize bytes. What
/// the caller's tensors have is compared with what the weights are: pointers know no sizes.
void run(std::uintptr_t weights, std::uintptr_t x, std::int64_t m, std::int64_t k,
         std::int64_t x_row_stride, std::uintptr_t out, std::int64_t n, std::int64_t out_itemsize,
         std::uintptr_t stream) {
  const auto found = registry().find(weights);
  const Linear& linear = found->linear;
  check_size("the last dimension of x", k, linear.k());
  check_size("out_features", n, linear.n());
  check_size("the size of an element of out", out_itemsize, size_bytes(linear.out_dtype()));
  const nb::gil_scoped_release release;
  linear.run(as_pointer<const std::uint16_t>(x), m, as_pointer<void>(out), as_pointer<void>(stream),
             x_row_stride);
}

/// Decodes rows [row_begin, row_end) to (row_end - row_begin) x k elements of itemsize bytes.
void unpack_rows(std::uintptr_t weights, std::uintptr_t out, std::int64_t row_begin,
                 std::int64_t row_end, std::int64_t k, std::int64_t itemsize,
                 std::uintptr_t stream) {
  const auto found = registry().find(weights);
  check_size("in_features", k, found->linear.k());
  check_size("the size of a weight", itemsize, size_bytes(found->linear.out_dtype()));
  const nb::gil_scoped_release release;
  if (found->layout) {
    unpack_image_cuda(*found->layout, as_pointer<const void>(weights), as_pointer<void>(out),
                      row_begin, row_end, as_pointer<void>(stream));
    return;
  }
  const PackedMatrix& packed = *found->packed;
  if (row_begin != 0) refuse("a layer on a CPU is decoded as a whole: row_begin must be 0");
  check_size("out_features", row_end, packed.n());
  const auto size = static_cast<std::size_t>(packed.n() * packed.k());
  if (packed.dtype() == DType::f32) {
    unpack(packed, std::span(as_pointer<float>(out), size));
  } else {
    unpack(packed, std::span(as_pointer<std::uint16_t>(out), size));
  }
}

/// Whether the library was built with its GPU backend.
bool has_cuda() {
  try {
    plan_image_cuda(nullptr, 0, 0);
  } catch (const Error& error) {
    return error.code() != ErrorCode::unsupported;
  }
  return true;
}

void bind_images(nb::module_& module) {
  nb::class_<ImageLayout>(module, "ImageLayout")
      .def_ro("n", &ImageLayout::n)
      .def_ro("k", &ImageLayout::k)
      .def_ro("window_base", &ImageLayout::window_base)
      .def_ro("has_nonfinite", &ImageLayout::has_nonfinite)
      .def_ro("more_groups", &ImageLayout::more_groups)
      .def_prop_ro("encoding", [](const ImageLayout& l) { return name(l.encoding); })
      .def_prop_ro("nbytes", &ImageLayout::size_bytes);
  module.def("default_spare_groups", &default_spare_groups, nb::arg("n"), nb::arg("k"));
  module.def(
      "image_layout",
      [](const Packed& packed, std::int64_t spare) { return image_layout(packed.matrix(), spare); },
      nb::arg("packed"), nb::arg("spare_groups"));
  module.def(
      "write_image",
      [](const Packed& packed, const ImageLayout& layout, std::uintptr_t out, std::size_t size) {
        const nb::gil_scoped_release release;
        write_image(packed.matrix(), layout, {as_pointer<std::byte>(out), size});
      },
      nb::arg("packed"), nb::arg("layout"), nb::arg("out"), nb::arg("size"));
  module.def(
      "read_image",
      [](const ImageLayout& layout, std::uintptr_t image, std::size_t size) {
        const nb::gil_scoped_release release;
        return std::make_unique<Packed>(
            read_image(layout, {as_pointer<const std::byte>(image), size}));
      },
      nb::arg("layout"), nb::arg("image"), nb::arg("size"));
  module.def(
      "plan_image_cuda",
      [](std::uintptr_t w, std::int64_t n, std::int64_t k, double max_exception_rate,
         std::int64_t spare, std::uintptr_t stream) {
        const nb::gil_scoped_release release;
        const PackOptions options{.max_exception_rate = max_exception_rate};
        return plan_image_cuda(as_pointer<const std::uint16_t>(w), n, k, options, spare,
                               as_pointer<void>(stream));
      },
      nb::arg("weight"), nb::arg("n"), nb::arg("k"), nb::arg("max_exception_rate"),
      nb::arg("spare_groups"), nb::arg("stream"));
  module.def(
      "pack_image_cuda",
      [](std::uintptr_t w, const ImageLayout& layout, std::uintptr_t image, std::uintptr_t stream) {
        const nb::gil_scoped_release release;
        pack_image_cuda(as_pointer<const std::uint16_t>(w), layout, as_pointer<void>(image),
                        as_pointer<void>(stream));
      },
      nb::arg("weight"), nb::arg("layout"), nb::arg("image"), nb::arg("stream"));
}

}  // namespace

void bind_layers(nb::module_& module) {
  bind_images(module);
  module.def("has_cuda", &has_cuda);
  nb::class_<Layer>(module, "Layer")
      .def_static("cpu", &make_cpu_layer, nb::arg("packed"), nb::arg("batch_invariant"))
      .def_static("cuda", &make_cuda_layer, nb::arg("layout"), nb::arg("image"), nb::arg("device"),
                  nb::arg("programmatic_launch"), nb::arg("batch_invariant"))
      .def_prop_ro("address", [](const Layer& layer) { return layer.weights().address; })
      .def(
          "plan",
          [](const Layer& layer, std::int64_t m) {
            return layer.weights().linear.plan(m).to_string();
          },
          nb::arg("m"));
  module.def("run", &run, nb::arg("weights"), nb::arg("x"), nb::arg("m"), nb::arg("k"),
             nb::arg("x_row_stride"), nb::arg("out"), nb::arg("n"), nb::arg("out_itemsize"),
             nb::arg("stream"));
  module.def("unpack_rows", &unpack_rows, nb::arg("weights"), nb::arg("out"), nb::arg("row_begin"),
             nb::arg("row_end"), nb::arg("k"), nb::arg("itemsize"), nb::arg("stream"));
}

}  // namespace slimgemm::python
