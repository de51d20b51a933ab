// SPDX-License-Identifier: Apache-2.0
#include "inspect/fp16_statistics.hpp"

#include "checkpoint/fp16.hpp"
#include "checkpoint/packed_tensor.hpp"
#include "inspect/exponents.hpp"
#include "support/parallel.hpp"

#include <mutex>
#include <vector>

namespace slimgemm::inspect {
namespace {

constexpr std::size_t patterns = 65536;

// How often each of the 65536 bit patterns occurs.
std::vector<std::uint64_t> count_patterns(std::span<const std::uint16_t> weights) {
  constexpr std::int64_t grain = std::int64_t{1} << 20;
  std::vector<std::uint64_t> total(patterns);
  std::mutex mutex;
  parallel_for(static_cast<std::int64_t>(weights.size()), grain, 0,
               [&](std::int64_t begin, std::int64_t end) {
                 std::vector<std::uint64_t> part(patterns);
                 for (std::int64_t i = begin; i < end; ++i) {
                   ++part[weights[static_cast<std::size_t>(i)]];
                 }
                 const std::lock_guard lock(mutex);
                 for (std::size_t p = 0; p < patterns; ++p) total[p] += part[p];
               });
  return total;
}

bool is_bf16(std::size_t pattern) {
  std::array<std::uint16_t, 1> value{static_cast<std::uint16_t>(pattern)};
  return checkpoint::fp16_to_bf16(value);
}

double share(double part, std::uint64_t whole) {
  return whole == 0 ? 0 : part / static_cast<double>(whole);
}

}  // namespace

double Fp16Statistics::exponent_entropy() const { return entropy_bits(exponents); }
double Fp16Statistics::mantissa_entropy() const { return entropy_bits(mantissas); }
double Fp16Statistics::fp16_option_bits() const {
  return share(8 * static_cast<double>(packed_bytes), weights);
}
double Fp16Statistics::bf16_share() const {
  return share(static_cast<double>(bf16_values), weights);
}

void Fp16Statistics::add(const Fp16Statistics& other) {
  for (std::size_t i = 0; i < exponents.size(); ++i) exponents[i] += other.exponents[i];
  for (std::size_t i = 0; i < mantissas.size(); ++i) mantissas[i] += other.mantissas[i];
  weights += other.weights;
  bf16_values += other.bf16_values;
  tensors += other.tensors;
  packing_tensors += other.packing_tensors;
  packed_bytes += other.packed_bytes;
}

void Fp16Counter::add(std::span<std::uint16_t> weights, std::int64_t n, std::int64_t k) {
  const std::vector<std::uint64_t> counts = count_patterns(weights);
  for (std::size_t p = 0; p < patterns; ++p) {
    if (counts[p] == 0) continue;
    sum_.exponents[p >> 10 & 31] += counts[p];
    sum_.mantissas[p & 1023] += counts[p];
    if (is_bf16(p)) sum_.bf16_values += counts[p];
  }
  sum_.weights += weights.size();
  all_bf16_ = all_bf16_ && checkpoint::fp16_to_bf16(weights);
  if (all_bf16_) packed_bytes_ += checkpoint::align_matrix(measure(weights, n, k).packed_bytes);
}

Fp16Statistics Fp16Counter::statistics(bool packs) const {
  Fp16Statistics statistics = sum_;
  const bool packed = packs && all_bf16_;
  statistics.tensors = 1;
  statistics.packing_tensors = packed ? 1 : 0;
  statistics.packed_bytes = packed ? packed_bytes_ : sizeof(std::uint16_t) * sum_.weights;
  return statistics;
}

}  // namespace slimgemm::inspect
