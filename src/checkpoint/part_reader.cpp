// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/part_reader.hpp"

#include "checkpoint/xxh3.hpp"

#include <algorithm>

namespace slimgemm::checkpoint {

bool read_run(BulkReader& reader, const ByteRun& run, std::size_t index, BufferPool& buffers,
              const PartReader::Push& push) {
  Xxh3 xxh3;
  std::uint64_t offset = 0;
  bool last = false;
  while (!last) {
    const std::uint64_t size = std::min(run.part_bytes, run.size - offset);
    last = offset + size == run.size;
    Part part{.run = index, .last = last, .offset = offset};
    part.buffer = buffers.take(size + BulkReader::slack_bytes);
    part.bytes = reader.read(*part.buffer, run.offset + offset, size, part_alignment,
                             [&](std::span<const std::byte> bytes) { xxh3.update(bytes); });
    if (last) part.xxh3 = xxh3.digest();
    if (!push(std::move(part))) return false;
    offset += size;
  }
  return true;
}

void read_runs(BulkReader& reader, const std::vector<ByteRun>& runs, BufferPool& buffers,
               const PartReader::Push& push) {
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!read_run(reader, runs[i], i, buffers, push)) return;
  }
}

}  // namespace slimgemm::checkpoint
