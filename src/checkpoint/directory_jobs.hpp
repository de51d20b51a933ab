// SPDX-License-Identifier: Apache-2.0
// checkpoint.hpp's work on directories.
#pragma once

#include "checkpoint/buffer_pool.hpp"
#include "checkpoint/checkpoint.hpp"

#include <string>

namespace slimgemm::checkpoint {

PackSummary pack_directory(const std::string& in, const std::string& out,
                           const PackCheckpointOptions& options, Workspace& workspace,
                           Meter& meter);
UnpackSummary unpack_directory(const std::string& in, const std::string& out, Workspace& workspace,
                               Meter& meter);
/// `ignored` is a file at the top that is not the directory's own, or empty.
VerifySummary verify_directory(const std::string& packed, const std::string& against,
                               const std::string& ignored, Workspace& workspace, Meter& meter);

}  // namespace slimgemm::checkpoint
