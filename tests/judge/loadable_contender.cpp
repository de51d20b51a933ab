// SPDX-License-Identifier: Apache-2.0
// Outside contenders for the tests, one flaw each: compiled once a value of FLAW. Their layers are
// those of tiny_problem.hpp.
#include "tiny_problem.hpp"

#include <slimgemm/contender.h>

#include <cstdio>

namespace {

using namespace slimgemm;
using namespace slimgemm::judge;

enum class Flaw {
  none,
  wrong_row,
  wrong_abi,
  no_name,
  no_run,
  null_table,
  prepare_error,
  run_error,
  negative_bytes,
  no_bytes,
};
constexpr Flaw flaw = Flaw::FLAW;

int prepare(const slimgemm_contender_matrix* matrices, std::int32_t, void** state, char* message,
            std::size_t message_size) {
  if (flaw == Flaw::prepare_error) {
    std::snprintf(message, message_size, "weights of %d rows are too many",
                  static_cast<int>(matrices[0].n));
    return 7;
  }
  WeightSet weights(layer_count);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const auto& from = matrices[i];
    weights[i] = {from.n, from.k, static_cast<DType>(from.dtype), from.host, from.device};
  }
  auto* contender = new test::DenseContender;
  contender->prepare(weights);
  *state = contender;
  return 0;
}

int run(void* state, std::int32_t layer, const void* x, std::int64_t m, void* out, void* stream,
        char*, std::size_t) {
  if (flaw == Flaw::run_error) return -3;  // and no message
  static_cast<test::DenseContender*>(state)->run(static_cast<Layer>(layer), x, m, out, stream);
  if (flaw == Flaw::wrong_row && layer == SLIMGEMM_O) {
    static_cast<std::uint16_t*>(out)[0] = 0x4400;  // 512
  }
  return 0;
}

std::int64_t weight_bytes(void* state, std::int32_t layer, std::int64_t m) {
  if (flaw == Flaw::negative_bytes) return -1;
  return static_cast<test::DenseContender*>(state)->weight_bytes(static_cast<Layer>(layer), m);
}

void destroy(void* state) { delete static_cast<test::DenseContender*>(state); }

constexpr slimgemm_contender contender = {
    flaw == Flaw::wrong_abi ? 99 : SLIMGEMM_CONTENDER_ABI,
    flaw == Flaw::no_name ? nullptr : "loaded",
    prepare,
    flaw == Flaw::no_run ? nullptr : run,
    flaw == Flaw::no_bytes ? nullptr : weight_bytes,
    destroy,
};

}  // namespace

extern "C" const slimgemm_contender* slimgemm_contender_get(void) {
  return flaw == Flaw::null_table ? nullptr : &contender;
}
