// SPDX-License-Identifier: Apache-2.0
#include <slimgemm/plan.hpp>

namespace slimgemm {

std::string Plan::to_string() const {
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  std::string text = "m=" + number(m) + " n=" + number(n) + " k=" + number(k) + ": " + kernel +
                     ", " + number(grid_ctas) + " x " + number(threads_per_cta) + " threads";
  if (cluster_ctas > 1) text += ", clusters of " + number(cluster_ctas);
  if (smem_bytes > 0) text += ", " + number(smem_bytes) + " B shared memory";
  text += ", reads " + number(weight_bytes) + " B of weights";
  if (!reason.empty()) text += " (" + reason + ")";
  return text;
}

}  // namespace slimgemm
