// SPDX-License-Identifier: Apache-2.0
// One safetensors file packed, unpacked, verified; checkpoint.hpp does it for directories, too.
#pragma once

#include "checkpoint/buffer_pool.hpp"
#include "checkpoint/checkpoint.hpp"
#include "checkpoint/packed_header.hpp"
#include "checkpoint/safetensors_file.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

/// What became of one file.
struct PackedFileResult {
  std::uint64_t file_bytes = 0;
  std::string header_xxh3 = {};                     ///< the seal's digits
  std::map<std::string, std::string> renamed = {};  ///< original name -> name of the packed tensor
  std::uint64_t tensor_bytes = 0;                   ///< of all tensors as they lie in it
};

/// Names and reasons of all tensors, before a byte of them is read.
std::vector<Selection> select_all(const SafetensorsHeader& header, const SelectOptions& options);

/// Throws Error(invalid_argument) where the file is packed already or a new name is taken.
void check_packable(const SafetensorsFile& source, const std::vector<Selection>& selections);

/// Bytes that the packed file is expected to take.
std::uint64_t expected_bytes(const SafetensorsFile& source,
                             const std::vector<Selection>& selections);

/// Writes the packed file at `working`, complete on the disk when it returns; adds to `summary`.
PackedFileResult pack_file(const SafetensorsFile& source, const std::string& working,
                           const PackCheckpointOptions& options, Workspace& workspace, Meter& meter,
                           PackSummary& summary);

/// What a packed file says of itself, as pack_file() returned it.
PackedFileResult describe(const PackedFile& packed);

/// Writes the original file at `working`, complete on the disk when it returns.
/// Errors: corrupt_data, io_error.
void unpack_file(const PackedFile& packed, const std::string& working, Workspace& workspace,
                 Meter& meter);

/// What is verified, and against what.
struct VerifyRequest {
  std::string path;
  std::string label;        ///< what problems begin with
  std::string against;      ///< the original file, or empty
  std::string header_xxh3;  ///< the digits that the seal must have, or empty
};

/// Adds to `summary.problems` whatever is wrong with the file. Errors: io_error.
void verify_file(const VerifyRequest& request, Workspace& workspace, Meter& meter,
                 VerifySummary& summary);

}  // namespace slimgemm::checkpoint
