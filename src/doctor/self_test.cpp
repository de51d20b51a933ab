// SPDX-License-Identifier: Apache-2.0
// A product whose every sum is exact in FP32 in any order: the weights are multiples of 1/64 below
// 1/2 and at most one 4096 a row, x is -2 to 2: 20 bits at most. So all kernels, on any machine,
// must give the same bits, those of the FP64 sum rounded once to BF16.
#include "cpu/cpu_backend.hpp"
#include "doctor/machine.hpp"
#include "judge/executor.hpp"
#include "support/bf16.hpp"

#include <slimgemm/slimgemm.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>

namespace slimgemm::doctor {
namespace {

constexpr std::int64_t rows = 208;  // ends inside a tile of 64, as real layers may
constexpr std::int64_t columns = 328;
constexpr std::int64_t token_counts[] = {1, 8, 40, 128};  // every kind of kernel
constexpr std::int64_t tokens_max = 128;

struct Product {
  std::vector<std::uint16_t> w;         // rows x columns, BF16
  std::vector<std::uint16_t> x;         // tokens_max x columns, BF16
  std::vector<std::uint16_t> expected;  // tokens_max x rows, BF16
};

// Zeros and some far outliers, which 12 bits do not express, are among the weights.
float weight_at(std::int64_t row, std::int64_t column) {
  const std::int64_t mixed = (row * 7919 + column * 104729) % 1009;
  if (mixed == 0) return 0;
  if (mixed == 1) return 4096;
  return static_cast<float>(mixed % 63 - 31) / 64;
}

float x_at(std::int64_t token, std::int64_t column) {
  return static_cast<float>((token * 31 + column * 17) % 5 - 2);
}

Product make_product() {
  Product product;
  std::vector<float> w;
  for (std::int64_t j = 0; j < rows; ++j) {
    for (std::int64_t i = 0; i < columns; ++i) w.push_back(weight_at(j, i));
  }
  std::transform(w.begin(), w.end(), std::back_inserter(product.w), float_to_bf16);
  for (std::int64_t t = 0; t < tokens_max; ++t) {
    for (std::int64_t i = 0; i < columns; ++i) product.x.push_back(float_to_bf16(x_at(t, i)));
    for (std::int64_t j = 0; j < rows; ++j) {
      double sum = 0;
      for (std::int64_t i = 0; i < columns; ++i) {
        sum += static_cast<double>(w[static_cast<std::size_t>(j * columns + i)]) * x_at(t, i);
      }
      product.expected.push_back(float_to_bf16(static_cast<float>(sum)));
    }
  }
  return product;
}

// 12 bits whatever the exceptions.
PackedMatrix pack_product(const Product& product) {
  PackOptions options;
  options.max_exception_rate = 1;
  return pack(std::span<const std::uint16_t>(product.w), rows, columns, options);
}

std::string compare(const Product& product, const std::vector<std::uint16_t>& out, std::int64_t m,
                    const std::string& kernel) {
  for (std::int64_t i = 0; i < m * rows; ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (out[at] == product.expected[at]) continue;
    return fmt::format("{}, {} tokens: output {} of token {} is {}, not {}", kernel, m, i % rows,
                       i / rows, bf16_to_float(out[at]), bf16_to_float(product.expected[at]));
  }
  return {};
}

std::string test_codec(const Product& product, const PackedMatrix& packed) {
  std::vector<std::uint16_t> back(product.w.size());
  unpack(packed, back);
  if (back != product.w) return "unpacking gave other weights than were packed";
  static_cast<void>(PackedMatrix::from_bytes(packed.bytes()));
  return {};
}

void add_kernel(std::string& kernels, const std::string& kernel) {
  if (kernels.find(kernel) != std::string::npos) return;
  if (!kernels.empty()) kernels += ", ";
  kernels += kernel;
}

void test_target(const cpu::Target& target, const Product& product, SelfTest& test) {
  const PackedMatrix packed = pack_product(product);
  test.problem = test_codec(product, packed);
  if (!test.problem.empty()) return;
  const auto backend = cpu::make_backend_for(target, packed, {});
  for (const std::int64_t m : token_counts) {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(m * rows));
    backend->run({.x = product.x.data(),
                  .m = m,
                  .x_row_stride = columns,
                  .out = out.data(),
                  .row_begin = 0,
                  .row_end = rows});
    const std::string kernel = backend->plan(rows, m).kernel;
    add_kernel(test.kernels, kernel);
    test.problem = compare(product, out, m, kernel);
    if (!test.problem.empty()) return;
  }
}

void test_gpu(int ordinal, const Product& product, SelfTest& test) {
  const auto executor = judge::make_cuda_executor(ordinal);
  LinearOptions options;
  options.device = Device::cuda;
  options.cuda_device = ordinal;
  const Linear linear(pack_product(product), options);
  const auto x = executor->allocate(product.x.size() * sizeof(std::uint16_t));
  executor->upload(*x, product.x.data(), x->size_bytes());
  for (const std::int64_t m : token_counts) {
    std::vector<std::uint16_t> out(static_cast<std::size_t>(m * rows));
    const auto device_out = executor->allocate(out.size() * sizeof(std::uint16_t));
    // Runs the call once, waits for it, and captures it into a graph.
    static_cast<void>(executor->record([&](void* stream) {
      linear.run(static_cast<const std::uint16_t*>(x->data()), m, device_out->data(), stream);
    }));
    executor->download(out.data(), *device_out, 0, device_out->size_bytes());
    const std::string kernel = linear.plan(m).kernel;
    add_kernel(test.kernels, kernel);
    test.problem = compare(product, out, m, kernel);
    if (!test.problem.empty()) return;
  }
}

}  // namespace

std::vector<SelfTest> test_cpu() {
  const Product product = make_product();
  std::vector<SelfTest> tests;
  for (cpu::Target target : cpu::available_targets()) {
    SelfTest test;
    test.what = target.name;
    try {
      test_target(target, product, test);
    } catch (const std::exception& error) {
      test.problem = error.what();
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

std::vector<SelfTest> test_gpus(const std::vector<judge::CudaDevice>& devices) {
  std::vector<SelfTest> tests;
  if (devices.empty()) return tests;
  const Product product = make_product();
  for (const judge::CudaDevice& device : devices) {
    if (!device.runs_kernels) continue;
    SelfTest test;
    test.what = fmt::format("{}, device {}", device.name, device.ordinal);
    try {
      test_gpu(device.ordinal, product, test);
    } catch (const std::exception& error) {
      test.problem = error.what();
    }
    tests.push_back(std::move(test));
  }
  return tests;
}

}  // namespace slimgemm::doctor
