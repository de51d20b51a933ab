// SPDX-License-Identifier: Apache-2.0
// What the tests of the GPU kernels share: layers, inputs, guarded runs and the FP64 reference.
#pragma once

#include "cuda/device_memory.hpp"
#include "support/bf16.hpp"

#include <slimgemm/slimgemm.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace slimgemm::cuda {

inline bool has_gpu() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/// A layer with weights of one encoding, dense values kept for the reference.
struct Layer {
  std::int64_t n;
  std::int64_t k;
  std::vector<double> w;
  PackedMatrix packed;
};

/// Normal weights; a share `exception_rate` of them is replaced by values outside the window.
inline Layer make_layer(Encoding encoding, std::int64_t n, std::int64_t k, double exception_rate,
                        unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  const auto count = static_cast<std::size_t>(n * k);
  std::vector<double> dense(count);
  if (encoding == Encoding::raw32) {
    std::vector<float> w(count);
    for (std::size_t i = 0; i < count; ++i) dense[i] = w[i] = normal(random);
    return {n, k, std::move(dense), pack(std::span<const float>(w), n, k)};
  }
  const float outside[] = {0.0f, -0.0f, 3.0f, -17.0f, 1e-20f, -3e-39f, 9.1835e-41f, 1024.0f};
  std::vector<std::uint16_t> w(count);
  for (std::size_t i = 0; i < count; ++i) {
    w[i] = float_to_bf16(uniform(random) < exception_rate ? outside[random() % 8] : normal(random));
  }
  // With max_exception_rate 0 a single exception makes the matrix raw16.
  if (encoding == Encoding::raw16) w[count - 1] = 0;
  for (std::size_t i = 0; i < count; ++i) dense[i] = bf16_to_float(w[i]);
  const PackOptions options{.max_exception_rate = encoding == Encoding::split12 ? 1.0 : 0.0};
  return {n, k, std::move(dense), pack(std::span<const std::uint16_t>(w), n, k, options)};
}

inline constexpr std::size_t guard_bytes = 4096;
inline constexpr unsigned char guard_value = 0xA5;

/// Runs a call on poisoned, guarded memory and returns m x n results as doubles.
template <class Call>
std::vector<double> run_guarded(const Call& call, const std::vector<std::uint16_t>& x,
                                std::size_t x_offset, std::int64_t m, std::int64_t n, DType dtype) {
  const std::size_t out_bytes = static_cast<std::size_t>(m * n * size_bytes(dtype));
  const DeviceMemory x_memory((x.size() + x_offset) * 2 + 2);
  const DeviceMemory out_memory(out_bytes + 2 * guard_bytes);
  auto* const x_device = x_memory.as<std::uint16_t>() + x_offset;
  auto* const out_device = out_memory.as<unsigned char>();
  check(cudaMemcpy(x_device, x.data(), x.size() * 2, cudaMemcpyHostToDevice), "copy x");
  check(cudaMemset(out_device, guard_value, out_bytes + 2 * guard_bytes), "fill guards");
  check(cudaMemset(out_device + guard_bytes, 0xFF, out_bytes), "poison out");
  call(x_device, out_device + guard_bytes);
  check(cudaDeviceSynchronize(), "kernel");
  std::vector<unsigned char> host(out_bytes + 2 * guard_bytes);
  check(cudaMemcpy(host.data(), out_device, host.size(), cudaMemcpyDeviceToHost), "copy out");
  for (std::size_t i = 0; i < guard_bytes; ++i) {
    if (host[i] != guard_value || host[host.size() - 1 - i] != guard_value) {
      ADD_FAILURE() << "wrote outside of out, " << i << " bytes from the guard's outer end";
      break;
    }
  }
  std::vector<double> result(static_cast<std::size_t>(m * n));
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (dtype == DType::bf16) {
      std::uint16_t bits;
      std::memcpy(&bits, host.data() + guard_bytes + 2 * i, 2);
      result[i] = bf16_to_float(bits);
    } else {
      float value;
      std::memcpy(&value, host.data() + guard_bytes + 4 * i, 4);
      result[i] = value;
    }
  }
  return result;
}

/// x with row_stride >= k; every eighth row (from the first if m < 8) is a probe row, whose single
/// nonzero is 2^power at column probe_k.
struct Input {
  std::vector<std::uint16_t> x;
  std::vector<std::int64_t> probe_k;  // -1: a dense row
};
inline Input make_input(std::int64_t m, std::int64_t k, std::int64_t row_stride, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  // What lies between the rows must not matter: NaN.
  Input input{std::vector<std::uint16_t>(static_cast<std::size_t>(m * row_stride), 0x7FC0), {}};
  for (std::int64_t i = 0; i < m; ++i) {
    const bool probe = (i + seed) % 8 == 0;
    input.probe_k.push_back(probe ? static_cast<std::int64_t>(random() % k) : -1);
    for (std::int64_t j = 0; j < k; ++j) {
      const float value = probe ? (j == input.probe_k.back() ? 0.5f : 0.0f) : normal(random);
      input.x[static_cast<std::size_t>(i * row_stride + j)] = float_to_bf16(value);
    }
  }
  return input;
}

/// Squares of errors and, beside them, of what is added up: their expectation for terms of random
/// signs.
struct Squares {
  double error = 0;
  double norm = 0;
};
/// Of a dense row i of x and its results.
inline Squares compare_dense_row(const Layer& layer, const std::uint16_t* x, std::int64_t row_begin,
                                 std::span<const double> got) {
  std::vector<double> row(static_cast<std::size_t>(layer.k));
  std::transform(x, x + layer.k, row.begin(), bf16_to_float);
  Squares squares;
  for (std::size_t j = 0; j < got.size(); ++j) {
    const double* const w = layer.w.data() + (row_begin + static_cast<std::int64_t>(j)) * layer.k;
    double sum = 0;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const double term = w[c] * row[c];
      sum += term;
      squares.norm += term * term;
    }
    squares.error += (got[j] - sum) * (got[j] - sum);  // NaN and Inf stay what they are
  }
  return squares;
}

inline void expect_probe_row(const Layer& layer, std::int64_t probe_k, std::int64_t row_begin,
                             std::span<const double> got, const std::string& what) {
  for (std::size_t j = 0; j < got.size(); ++j) {
    const double w = layer.w[static_cast<std::size_t>(
        (row_begin + static_cast<std::int64_t>(j)) * layer.k + probe_k)];
    const double exact = 0.5 * w;
    const double expected = layer.packed.dtype() == DType::f32
                                ? exact
                                : bf16_to_float(float_to_bf16(static_cast<float>(exact)));
    ASSERT_EQ(got[j], expected) << what << ": probe row, column " << j << " k " << probe_k
                                << " weight " << w;
  }
}

/// Dense rows on all cores, as they take FP64 products of everything.
inline void expect_close(const Layer& layer, const Input& input, std::int64_t row_stride,
                         std::int64_t m, std::int64_t row_begin, std::int64_t row_end,
                         const std::vector<double>& got, const std::string& what) {
  const std::int64_t n = row_end - row_begin;
  const auto results = [&](std::int64_t i) {
    return std::span(got).subspan(static_cast<std::size_t>(i * n), static_cast<std::size_t>(n));
  };
  const auto threads = static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::future<Squares>> parts;
  for (std::int64_t part = 0; part < std::min(threads, m); ++part) {
    parts.push_back(std::async(std::launch::async, [&, part] {
      Squares sum;
      for (std::int64_t i = part; i < m; i += threads) {
        if (input.probe_k[static_cast<std::size_t>(i)] >= 0) continue;
        const Squares row =
            compare_dense_row(layer, input.x.data() + i * row_stride, row_begin, results(i));
        sum.error += row.error;
        sum.norm += row.norm;
      }
      return sum;
    }));
  }
  Squares sum;
  for (auto& part : parts) {
    const Squares of_part = part.get();
    sum.error += of_part.error;
    sum.norm += of_part.norm;
  }
  for (std::int64_t i = 0; i < m; ++i) {
    const std::int64_t probe = input.probe_k[static_cast<std::size_t>(i)];
    if (probe >= 0) expect_probe_row(layer, probe, row_begin, results(i), what);
  }
  const double most = layer.packed.dtype() == DType::f32 ? 1e-6 : 4e-3;
  EXPECT_LE(std::sqrt(sum.error), most * std::sqrt(sum.norm)) << what;
}

}  // namespace slimgemm::cuda
