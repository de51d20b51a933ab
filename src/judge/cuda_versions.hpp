// SPDX-License-Identifier: Apache-2.0
// Versions of what the machine brings, for the report.
#pragma once

#include <string>

namespace slimgemm::judge {

/// Version and place of cuBLAS ("13.1.0, /usr/local/cuda/lib64/libcublasLt.so.13"), or why there is
/// none.
std::string blas_version();

}  // namespace slimgemm::judge
