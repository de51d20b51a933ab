// SPDX-License-Identifier: Apache-2.0
// Packing, unpacking and verifying whole checkpoints: one safetensors file, or a directory with
// shards and everything beside them. docs/format.md describes what is written.
#pragma once

#include <slimgemm/packed.hpp>

#include "checkpoint/meter.hpp"
#include "checkpoint/selection.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

struct PackCheckpointOptions {
  SelectOptions select;
  PackOptions codec;
  /// Verify what was written before it gets its final name.
  bool verify = true;
};

/// A tensor that stays as it is, and why.
struct KeptTensor {
  std::string name;
  std::string why;
};

struct PackSummary {
  std::uint64_t files = 0;         ///< safetensors files that were packed
  std::uint64_t files_reused = 0;  ///< of these, finished by an earlier run
  std::uint64_t files_copied = 0;
  std::uint64_t bytes_in = 0;  ///< of all files
  std::uint64_t bytes_out = 0;
  std::uint64_t tensors_packed = 0;
  std::uint64_t weights_packed = 0;
  std::uint64_t packed_bytes = 0;  ///< of the packed tensors
  std::uint64_t exceptions = 0;
  std::uint64_t raw16_matrices = 0;  ///< packed without gain: too many exceptions
  std::vector<KeptTensor> kept = {};
  double pack_s = 0;  ///< the packing, without the verification
  double verify_s = 0;
};

/// Packs `in`, a safetensors file or a model directory, into `out`, which must not exist. Works in
/// OUT.partial beside it, which takes the final name when all is done; of a directory, an earlier
/// run's finished shards are used again. `in` is only read.
/// Errors: invalid_argument where there is nothing to pack, `out` exists or lies inside `in`, `in`
/// is packed already or quantized, a glob matches nothing, or the disk has too little space;
/// corrupt_data for what is wrong with the files; io_error; out_of_memory; unsupported in a build
/// without JSON or XXH3.
PackSummary pack_checkpoint(const std::string& in, const std::string& out,
                            const PackCheckpointOptions& options, Meter& meter);

struct UnpackSummary {
  std::uint64_t files = 0;
  std::uint64_t bytes_in = 0;
  std::uint64_t bytes_out = 0;
  double unpack_s = 0;
};

/// Gives back the original file or directory, byte for byte, by way of OUT.partial; every byte is
/// checked against the checksums on the way. Errors: as above, corrupt_data naming file and tensor.
UnpackSummary unpack_checkpoint(const std::string& in, const std::string& out, Meter& meter);

struct VerifySummary {
  std::vector<std::string> problems;  ///< each names the file, and the tensor if it is about one
  std::uint64_t files = 0;
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;  ///< read
  double verify_s = 0;
};

/// Checks every byte of a packed file or directory against its checksums and, where `against` is
/// not empty, against the original file or directory. Writes nothing. Errors: io_error;
/// corrupt_data where `packed` is not packed or of another version; unsupported.
VerifySummary verify_checkpoint(const std::string& packed, const std::string& against,
                                Meter& meter);

}  // namespace slimgemm::checkpoint
