// SPDX-License-Identifier: Apache-2.0
// A contender in its simplest form: it keeps the dense weights and multiplies with plain loops on
// the CPU. Replace prepare() and run() by your own; the judge checks and times whatever is in here.
#include <slimgemm/contender.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace {

constexpr int layer_count = 5;
constexpr std::int32_t dtype_bf16 = 1;
constexpr std::int64_t unpooler_slice_rows = 1024;
constexpr std::int64_t unpooler_slice_max_m = 8;

// A copy of one matrix. The pointers given to prepare() are valid only while it runs.
struct Matrix {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int32_t dtype = 0;
  std::vector<unsigned char> bytes;
};
struct State {
  Matrix layers[layer_count];
};

float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t to_bf16(float value) {  // to nearest, ties to even; the sums here are finite
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float element(float value) { return value; }
float element(std::uint16_t bits) { return from_bf16(bits); }

// Sixteen sums side by side, which a compiler can keep in vector registers.
template <typename Weight>
float dot(const std::uint16_t* x, const Weight* w, std::int64_t k) {
  constexpr int lanes = 16;
  float sums[lanes] = {};
  std::int64_t i = 0;
  for (; i + lanes <= k; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      sums[lane] += from_bf16(x[i + lane]) * element(w[i + lane]);
    }
  }
  float total = 0;
  for (; i < k; ++i) total += from_bf16(x[i]) * element(w[i]);
  for (const float sum : sums) total += sum;
  return total;
}

std::int64_t rows_computed(const Matrix& matrix, std::int32_t layer, std::int64_t m) {
  const bool sliced = layer == SLIMGEMM_UNPOOLER && m <= unpooler_slice_max_m;
  return sliced ? unpooler_slice_rows : matrix.n;
}

int fail(char* message, std::size_t message_size, const char* text) {
  std::snprintf(message, message_size, "%s", text);
  return 1;
}

// Exceptions must not leave the library: every failure is a message and a nonzero status.
int prepare(const slimgemm_contender_matrix* matrices, std::int32_t cuda_device, void** state,
            char* message, std::size_t message_size) {
  if (cuda_device >= 0) return fail(message, message_size, "this example computes on the CPU only");
  try {
    auto* made = new State;
    *state = made;
    for (int i = 0; i < layer_count; ++i) {
      const slimgemm_contender_matrix& from = matrices[i];
      const std::size_t element_bytes = from.dtype == dtype_bf16 ? 2 : 4;
      Matrix& to = made->layers[i];
      to.n = from.n;
      to.k = from.k;
      to.dtype = from.dtype;
      to.bytes.resize(static_cast<std::size_t>(from.n * from.k) * element_bytes);
      std::memcpy(to.bytes.data(), from.host, to.bytes.size());
    }
  } catch (const std::exception& error) {
    delete static_cast<State*>(*state);
    return fail(message, message_size, error.what());
  }
  return 0;
}

int run(void* state, std::int32_t layer, const void* x, std::int64_t m, void* out, void* /*stream*/,
        char* message, std::size_t message_size) {
  if (layer < 0 || layer >= layer_count) return fail(message, message_size, "unknown layer");
  const Matrix& matrix = static_cast<State*>(state)->layers[layer];
  const std::int64_t n = rows_computed(matrix, layer, m);
  const auto* tokens = static_cast<const std::uint16_t*>(x);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < m; ++i) {
      const std::uint16_t* token = tokens + i * matrix.k;
      if (matrix.dtype == dtype_bf16) {
        const auto* w = reinterpret_cast<const std::uint16_t*>(matrix.bytes.data()) + j * matrix.k;
        static_cast<std::uint16_t*>(out)[i * n + j] = to_bf16(dot(token, w, matrix.k));
      } else {
        const auto* w = reinterpret_cast<const float*>(matrix.bytes.data()) + j * matrix.k;
        static_cast<float*>(out)[i * n + j] = dot(token, w, matrix.k);
      }
    }
  }
  return 0;
}

std::int64_t weight_bytes(void* state, std::int32_t layer, std::int64_t m) {
  const Matrix& matrix = static_cast<State*>(state)->layers[layer];
  return rows_computed(matrix, layer, m) * matrix.k * (matrix.dtype == dtype_bf16 ? 2 : 4);
}

void destroy(void* state) { delete static_cast<State*>(state); }

constexpr slimgemm_contender contender = {
    SLIMGEMM_CONTENDER_ABI, "dense-example", prepare, run, weight_bytes, destroy,
};

}  // namespace

extern "C" const slimgemm_contender* slimgemm_contender_get(void) { return &contender; }
