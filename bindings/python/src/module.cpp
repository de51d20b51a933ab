// SPDX-License-Identifier: Apache-2.0
// slimgemm._core: what the package slimgemm wraps. docs/python.md describes the package.
#include "bindings.hpp"

#include <slimgemm/slimgemm.h>

#include <exception>

namespace {

// Errors of the library as Python's own exceptions.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const slimgemm::Error& error) {
    PyObject* type = PyExc_RuntimeError;
    if (error.code() == slimgemm::ErrorCode::invalid_argument) type = PyExc_ValueError;
    if (error.code() == slimgemm::ErrorCode::corrupt_data) type = PyExc_ValueError;
    if (error.code() == slimgemm::ErrorCode::unsupported) type = PyExc_NotImplementedError;
    if (error.code() == slimgemm::ErrorCode::out_of_memory) type = PyExc_MemoryError;
    if (error.code() == slimgemm::ErrorCode::io_error) type = PyExc_OSError;
    PyErr_SetString(type, error.what());
  }
}

}  // namespace

NB_MODULE(_core, module) {
  // Tensors that are alive when the interpreter ends hold packed weights; that is no leak.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(translate);
  module.attr("__version__") = slimgemm_version();
  slimgemm::python::bind_packed(module);
  slimgemm::python::bind_layers(module);
}
