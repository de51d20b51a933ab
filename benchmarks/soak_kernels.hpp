// SPDX-License-Identifier: Apache-2.0
// The check of a soak's results on the GPU.
#pragma once

#include "cuda/check.hpp"

#include <cstddef>

namespace slimgemm::bench {

/// Counted on the device.
struct SoakTally {
  unsigned long long checks = 0;
  unsigned long long differing = 0;       ///< checks that saw a difference
  unsigned long long first_check = 0;     ///< the first of them, from 0
  unsigned long long first_byte = ~0ULL;  ///< of out: lowest 16 bytes that ever differed
  unsigned int ctas_done = 0;             // of the check that runs
  unsigned int dirty = 0;                 // whether it saw a difference
};

/// Memory of a check: sizes are multiples of 16 bytes.
struct SoakCheck {
  void* out = nullptr;
  const void* expected = nullptr;
  std::size_t out_bytes = 0;
  void* x = nullptr;
  const void* x_source = nullptr;
  std::size_t x_bytes = 0;
  SoakTally* tally = nullptr;
};

/// Compares out with expected, counts, and poisons out. Meanwhile x is poison, too: it lets
/// programmatic launches behind it start at once, and one that touches x or out before the check is
/// complete gives another result. Poison is 0xFF.
void launch_soak_check(const SoakCheck& check, cudaStream_t stream);

}  // namespace slimgemm::bench
