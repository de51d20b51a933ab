// SPDX-License-Identifier: Apache-2.0
// What the files of slimgemm._core share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/unique_ptr.h>

#include <slimgemm/slimgemm.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace slimgemm::python {

namespace nb = nanobind;

/// A packed matrix and, from its first use on, the CPU layer over the same bytes.
class Packed {
 public:
  explicit Packed(PackedMatrix matrix) : matrix_(std::move(matrix)) {}
  [[nodiscard]] const PackedMatrix& matrix() const { return matrix_; }
  [[nodiscard]] const Linear& linear() const;

 private:
  PackedMatrix matrix_;
  mutable std::once_flag made_;
  mutable std::optional<Linear> linear_;
};

void bind_packed(nb::module_& module);
void bind_layers(nb::module_& module);

[[noreturn]] inline void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

/// A pointer that Python hands over as an integer (tensor.data_ptr()).
template <class T>
T* as_pointer(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

/// "bfloat16" or "float32".
inline const char* dtype_name(DType dtype) { return dtype == DType::bf16 ? "bfloat16" : "float32"; }

}  // namespace slimgemm::python
