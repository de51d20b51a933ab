// SPDX-License-Identifier: Apache-2.0
// Reading ahead: parts of a file that a thread of its own reads, and takes the checksum of, while
// the caller works on the one before.
#pragma once

#include "checkpoint/buffer_pool.hpp"
#include "checkpoint/bulk_reader.hpp"
#include "checkpoint/prefetch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slimgemm::checkpoint {

/// Bytes of a file that belong together, and how they are cut.
struct ByteRun {
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t size = 0;
  std::uint64_t part_bytes = 0;  ///< but for the last
};

struct Part {
  std::size_t run = 0;       ///< which one it is of
  bool last = false;         ///< of its run
  std::uint64_t offset = 0;  ///< in its run
  BufferPool::Lease buffer = {};
  std::span<std::byte> bytes = {};
  std::uint64_t xxh3 = 0;    ///< of a run, with its last part; of a packed matrix (its payload)
  std::string problem = {};  ///< if not empty: there are no bytes, and no more parts of this run
};
using PartReader = Prefetch<Part>;

/// Size of the parts in which tensors are copied.
inline constexpr std::uint64_t copied_part_bytes = std::uint64_t{1} << 23;
/// Every part lies at a multiple of this in memory if it does in the file.
inline constexpr std::uint64_t part_alignment = 8;

/// Pushes all parts of the run, of none if it is empty an empty one; false where no more are
/// wanted. Errors: io_error, out_of_memory.
bool read_run(BulkReader& reader, const ByteRun& run, std::size_t index, BufferPool& buffers,
              const PartReader::Push& push);

/// The same for all runs.
void read_runs(BulkReader& reader, const std::vector<ByteRun>& runs, BufferPool& buffers,
               const PartReader::Push& push);

}  // namespace slimgemm::checkpoint
