// SPDX-License-Identifier: Apache-2.0
// What the commands on checkpoints print.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "inspect/units.hpp"

#include <cstdint>
#include <string>

namespace slimgemm::cli {

using inspect::bytes_text;

/// " in 12.3 s (1.21 GB/s)".
std::string rate_text(std::uint64_t bytes, double seconds);

/// The lines about what was packed and what was not; with `all`, every tensor that was kept.
std::string pack_text(const checkpoint::PackSummary& summary, bool all);

/// A meter that shows a line on stderr: rewritten on a terminal, now and then a plain one
/// elsewhere.
checkpoint::Meter make_meter(bool quiet);

}  // namespace slimgemm::cli
