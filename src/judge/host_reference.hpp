// SPDX-License-Identifier: Apache-2.0
// FP64 references on the host.
#pragma once

#include <slimgemm/types.hpp>

#include <cstdint>
#include <vector>

namespace slimgemm::judge {

/// ref[i * n + j] = sum over k of x[i, k] * w[j, k] in FP64. x: m x k BF16; w: n x k of w_dtype.
/// Uses OpenBLAS where built with it, else a threaded loop; `threads` is for the latter.
std::vector<double> host_reference(const std::uint16_t* x, const void* w, DType w_dtype,
                                   std::int64_t m, std::int64_t n, std::int64_t k, int threads);

/// The threaded loop on its own, for builds without OpenBLAS and for small m.
std::vector<double> host_reference_loop(const std::uint16_t* x, const void* w, DType w_dtype,
                                        std::int64_t m, std::int64_t n, std::int64_t k,
                                        int threads);

}  // namespace slimgemm::judge
