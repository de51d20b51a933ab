// SPDX-License-Identifier: Apache-2.0
// What FP16 weights say about packing them. An FP16 weight is a sign bit, 5 bits of exponent and 10
// of mantissa; where its significant bits fit 8 it is a BF16 weight, too, which 12 bits can hold.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace slimgemm::inspect {

/// Exact counts of a tensor, or the sum over several.
struct Fp16Statistics {
  std::array<std::uint64_t, 32> exponents{};
  std::array<std::uint64_t, 1024> mantissas{};
  std::uint64_t weights = 0;
  std::uint64_t bf16_values = 0;  ///< weights that are BF16 weights, too
  std::uint64_t tensors = 0;
  std::uint64_t packing_tensors = 0;  ///< whose every weight is: those that pack --fp16 packs
  std::uint64_t packed_bytes = 0;     ///< with --fp16, those that it keeps included

  [[nodiscard]] double exponent_entropy() const;
  [[nodiscard]] double mantissa_entropy() const;
  /// The fewest bits a weight takes under any code of single exponents and mantissas, with its
  /// sign.
  [[nodiscard]] double ideal_bits() const { return 1 + exponent_entropy() + mantissa_entropy(); }
  /// Bits a weight with --fp16, everything counted.
  [[nodiscard]] double fp16_option_bits() const;
  [[nodiscard]] double bf16_share() const;

  void add(const Fp16Statistics& other);
};

/// Adds the matrices of one tensor.
class Fp16Counter {
 public:
  /// A row-major n x k matrix, which is changed.
  void add(std::span<std::uint16_t> weights, std::int64_t n, std::int64_t k);
  /// `packs`: pack can pack a tensor of this shape.
  [[nodiscard]] Fp16Statistics statistics(bool packs) const;

 private:
  Fp16Statistics sum_;
  bool all_bf16_ = true;
  std::uint64_t packed_bytes_ = 0;
};

}  // namespace slimgemm::inspect
