// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/fp16.hpp"

#include "support/parallel.hpp"

#include <atomic>
#include <bit>
#include <optional>

namespace slimgemm::checkpoint {
namespace {

constexpr int fp16_bias = 15;
constexpr int bf16_bias = 127;
constexpr unsigned fp16_exponent_max = 31;
constexpr unsigned bf16_exponent_max = 255;
// An FP16 subnormal counts units of 2^-24; the BF16 exponent of one unit is 103.
constexpr int unit_exponent = bf16_bias - 24;

std::optional<std::uint16_t> widen(std::uint16_t bits) {
  const unsigned sign = bits & 0x8000U;
  unsigned exponent = bits >> 10 & 0x1FU;
  unsigned mantissa = bits & 0x3FFU;
  if (exponent == fp16_exponent_max) {
    exponent = bf16_exponent_max;
  } else if (exponent != 0) {
    exponent += bf16_bias - fp16_bias;
  } else if (mantissa != 0) {
    const int top = std::bit_width(mantissa) - 1;
    exponent = static_cast<unsigned>(unit_exponent + top);
    mantissa = mantissa << (10 - top) & 0x3FFU;
  }
  if ((mantissa & 7U) != 0) return std::nullopt;
  return static_cast<std::uint16_t>(sign | exponent << 7 | mantissa >> 3);
}

std::optional<std::uint16_t> narrow(std::uint16_t bits) {
  const unsigned sign = bits & 0x8000U;
  const unsigned exponent = bits >> 7 & 0xFFU;
  const unsigned mantissa = bits & 0x7FU;
  const auto join = [&](unsigned e) {
    return static_cast<std::uint16_t>(sign | e << 10 | mantissa << 3);
  };
  if (exponent == bf16_exponent_max) return join(fp16_exponent_max);
  if (exponent == 0) {
    return mantissa == 0 ? std::optional(static_cast<std::uint16_t>(sign)) : std::nullopt;
  }
  const int fp16_exponent = static_cast<int>(exponent) - bf16_bias + fp16_bias;
  if (fp16_exponent >= static_cast<int>(fp16_exponent_max)) return std::nullopt;
  if (fp16_exponent >= 1) return join(static_cast<unsigned>(fp16_exponent));
  // Subnormal: 1.mantissa shifted to units of 2^-24.
  const int top = static_cast<int>(exponent) - unit_exponent;
  if (top < 0) return std::nullopt;
  const unsigned significand = (0x80U | mantissa) << 3;  // its leading bit has the value 2^10
  const int shift = 10 - top;
  if ((significand & ((1U << shift) - 1)) != 0) return std::nullopt;
  return static_cast<std::uint16_t>(sign | significand >> shift);
}

template <class Convert>
bool convert_all(std::span<std::uint16_t> values, const Convert& convert) {
  constexpr std::int64_t grain = std::int64_t{1} << 18;
  std::atomic<bool> fits{true};
  parallel_for(static_cast<std::int64_t>(values.size()), grain, 0,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t i = begin; i < end; ++i) {
                   std::uint16_t& bits = values[static_cast<std::size_t>(i)];
                   const auto converted = convert(bits);
                   if (!converted) {
                     fits = false;
                     return;
                   }
                   bits = *converted;
                 }
               });
  return fits;
}

}  // namespace

bool fp16_to_bf16(std::span<std::uint16_t> values) { return convert_all(values, widen); }

bool bf16_to_fp16(std::span<std::uint16_t> values) { return convert_all(values, narrow); }

}  // namespace slimgemm::checkpoint
