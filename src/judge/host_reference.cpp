// SPDX-License-Identifier: Apache-2.0
#include "judge/host_reference.hpp"

#include "support/bf16.hpp"
#include "support/parallel.hpp"

#include <algorithm>
#include <cstddef>

#if SLIMGEMM_HAVE_CBLAS
#include <cblas.h>
#endif

namespace slimgemm::judge {
namespace {

void convert_row(const void* w, DType dtype, std::int64_t row, std::int64_t k, double* to) {
  if (dtype == DType::bf16) {
    const auto* from = static_cast<const std::uint16_t*>(w) + row * k;
    for (std::int64_t i = 0; i < k; ++i) to[i] = bf16_to_float(from[i]);
  } else {
    const auto* from = static_cast<const float*>(w) + row * k;
    for (std::int64_t i = 0; i < k; ++i) to[i] = from[i];
  }
}

std::vector<double> convert_x(const std::uint16_t* x, std::int64_t m, std::int64_t k) {
  std::vector<double> converted(static_cast<std::size_t>(m * k));
  for (std::int64_t row = 0; row < m; ++row) {
    convert_row(x, DType::bf16, row, k, converted.data() + row * k);
  }
  return converted;
}

// Independent sums, so that the compiler can keep them in vector registers.
double dot(const double* a, const double* b, std::int64_t k) {
  constexpr int lanes = 16;
  double sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  double total = 0;
  for (; i < k; ++i) total += a[i] * b[i];
  for (const double sum : sums) total += sum;
  return total;
}

#if SLIMGEMM_HAVE_CBLAS
constexpr std::int64_t blas_rows_min = 4;  // below, reading W dominates and the loop is faster
constexpr std::int64_t blas_block_rows = 512;

// W is widened to FP64 a block of rows at a time.
std::vector<double> reference_blas(const std::uint16_t* x, const void* w, DType w_dtype,
                                   std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  const std::vector<double> x64 = convert_x(x, m, k);
  std::vector<double> w64(static_cast<std::size_t>(std::min(n, blas_block_rows) * k));
  std::vector<double> out(static_cast<std::size_t>(m * n));
  for (std::int64_t first = 0; first < n; first += blas_block_rows) {
    const std::int64_t rows = std::min(blas_block_rows, n - first);
    parallel_for(rows, 8, threads, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        convert_row(w, w_dtype, first + row, k, w64.data() + row * k);
      }
    });
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(m),
                static_cast<int>(rows), static_cast<int>(k), 1.0, x64.data(), static_cast<int>(k),
                w64.data(), static_cast<int>(k), 0.0, out.data() + first, static_cast<int>(n));
  }
  return out;
}
#endif

}  // namespace

std::vector<double> host_reference_loop(const std::uint16_t* x, const void* w, DType w_dtype,
                                        std::int64_t m, std::int64_t n, std::int64_t k,
                                        int threads) {
  const std::vector<double> x64 = convert_x(x, m, k);
  std::vector<double> out(static_cast<std::size_t>(m * n));
  parallel_for(n, 8, threads, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> row64(static_cast<std::size_t>(k));
    for (std::int64_t row = begin; row < end; ++row) {
      convert_row(w, w_dtype, row, k, row64.data());
      for (std::int64_t i = 0; i < m; ++i) {
        out[static_cast<std::size_t>(i * n + row)] = dot(x64.data() + i * k, row64.data(), k);
      }
    }
  });
  return out;
}

std::vector<double> host_reference(const std::uint16_t* x, const void* w, DType w_dtype,
                                   std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
#if SLIMGEMM_HAVE_CBLAS
  if (m >= blas_rows_min) return reference_blas(x, w, w_dtype, m, n, k, threads);
#endif
  return host_reference_loop(x, w, w_dtype, m, n, k, threads);
}

}  // namespace slimgemm::judge
