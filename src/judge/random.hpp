// SPDX-License-Identifier: Apache-2.0
// Random numbers that do not depend on who draws them: a stream is named by numbers (seed, matrix,
// block), not by what was drawn before.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

namespace slimgemm::judge {

/// SplitMix64 (Steele, Lea, Flood 2014), started from a hash of the numbers that name the stream.
class RandomStream {
 public:
  RandomStream(std::initializer_list<std::uint64_t> name) {
    for (const std::uint64_t part : name) {
      state_ = mix(state_ ^ part) + increment;
    }
  }

  std::uint64_t bits() { return mix(state_ += increment); }

  /// Uniform in [0, limit), limit >= 1; the bias is below limit / 2^64.
  std::uint64_t below(std::uint64_t limit) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(bits()) * limit) >> 64);
  }

  /// Two independent standard normal numbers (Box-Muller).
  void normal_pair(float& first, float& second) {
    const std::uint64_t draw = bits();
    const float u = (static_cast<float>(draw >> 40) + 0.5F) * 0x1p-24F;  // in (0, 1)
    const float v = static_cast<float>((draw >> 8) & 0xFFFFFFU) * 0x1p-24F;
    const float radius = std::sqrt(-2.0F * std::log(u));
    const float angle = 6.2831853F * v;
    first = radius * std::cos(angle);
    second = radius * std::sin(angle);
  }

 private:
  static constexpr std::uint64_t increment = 0x9E3779B97F4A7C15U;
  static std::uint64_t mix(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31);
  }
  std::uint64_t state_ = 0;
};

}  // namespace slimgemm::judge
