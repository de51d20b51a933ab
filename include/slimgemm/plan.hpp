// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/types.hpp>

#include <cstdint>
#include <string>

namespace slimgemm {

/// Which kernel serves one (N, K, m), and why. Printed by `slimgemm plan`.
struct Plan {
  std::int64_t n = 0;  ///< output features computed by the call
  std::int64_t k = 0;
  std::int64_t m = 0;          ///< tokens
  std::string kernel;          ///< name of the kernel instance, e.g. "decode/split12/t8_r1x1_k8"
  std::string reason;          ///< why this one, in words
  std::int64_t grid_ctas = 0;  ///< CTAs launched (CPU: tasks)
  std::int64_t threads_per_cta = 0;  ///< threads of a CTA (CPU: worker threads)
  std::int64_t cluster_ctas = 1;     ///< CTAs of a cluster, which split K or share x
  std::int64_t smem_bytes = 0;       ///< dynamic shared memory of a CTA
  std::int64_t weight_bytes = 0;     ///< packed weight bytes the call must read

  /// One line for people.
  [[nodiscard]] std::string to_string() const;
};

}  // namespace slimgemm
