// SPDX-License-Identifier: Apache-2.0
// Stands in for everything that reads and writes packed checkpoints in a build without JSON or
// XXH3.
#include "checkpoint/checkpoint.hpp"

#include <slimgemm/error.hpp>

namespace slimgemm::checkpoint {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "checkpoints need JSON and XXH3, and this build lacks one of them. Install "
              "nlohmann-json3-dev and libxxhash-dev, configure and build again");
}

}  // namespace

PackSummary pack_checkpoint(const std::string&, const std::string&, const PackCheckpointOptions&,
                            Meter&) {
  refuse();
}

UnpackSummary unpack_checkpoint(const std::string&, const std::string&, Meter&) { refuse(); }

VerifySummary verify_checkpoint(const std::string&, const std::string&, Meter&) { refuse(); }

}  // namespace slimgemm::checkpoint
