// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_tensor.hpp"

#include "checkpoint/fp16.hpp"
#include "checkpoint/xxh3.hpp"
#include "codec/pack_plan.hpp"

#include <slimgemm/error.hpp>

#include <algorithm>
#include <array>

namespace slimgemm::checkpoint {
namespace {

template <class T>
std::span<const T> values(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Hands out the payload of a packed matrix and adds it to the checksum.
class Payload {
 public:
  explicit Payload(OutputFile& out) : out_(out) {}

  void add(std::span<const std::byte> bytes) {
    xxh3_.update(bytes);
    out_.write(bytes);
  }

  // The tiles, as many row tiles at a time as there is room for.
  void add_tiles(codec::PackPlan& plan) {
    const std::uint64_t bytes = plan.row_tile_bytes();
    const std::uint64_t row_tiles = plan.row_tiles();
    if (bytes > out_.piece_max()) {
      AlignedBuffer tiles(bytes);
      for (std::uint64_t r = 0; r < row_tiles; ++r) {
        plan.encode(r, r + 1, tiles.data());
        add({tiles.data(), tiles.size()});
      }
      return;
    }
    for (std::uint64_t r = 0; r < row_tiles;) {
      // A few tiles are not worth the meeting of all threads.
      const std::uint64_t most = (row_tiles - r) * bytes;
      const std::uint64_t least = std::max(bytes, std::min(most, out_.piece_max() / 4));
      const std::span<std::byte> room = out_.reserve(least, most);
      const std::uint64_t count = room.size() / bytes;
      plan.encode(r, r + count, room.data());
      xxh3_.update(room.first(count * bytes));
      out_.commit(count * bytes);
      r += count;
    }
  }

  [[nodiscard]] std::uint64_t xxh3() const { return xxh3_.digest(); }

 private:
  OutputFile& out_;
  Xxh3 xxh3_;
};

// Writes what the plan says, padded.
void write_matrix(codec::PackPlan& plan, std::uint64_t place, OutputFile& out) {
  constexpr std::array<std::byte, matrix_alignment> zeros{};
  const format::Header& header = plan.header();
  out.write(std::span(zeros).first(sizeof(header)));
  Payload payload(out);
  payload.add(std::span(zeros).first(header.tiles_offset - sizeof(header)));
  payload.add_tiles(plan);
  payload.add(plan.tail());
  out.write(std::span(zeros).first(align_matrix(header.total_bytes) - header.total_bytes));
  const format::Header sealed = plan.sealed_header(payload.xxh3());
  out.replace(place, std::as_bytes(std::span(&sealed, 1)));
}

}  // namespace

bool pack_matrix(std::span<std::byte> dense, const PackOptions& options, std::uint64_t place,
                 TensorRecord& record, OutputFile& out, PackedFacts& facts) {
  const auto append = [&](codec::PackPlan plan) {
    const format::Header& header = plan.header();
    note_encoding(record.encoding, name(plan.encoding()));
    facts.exceptions += header.exception_count;
    if (plan.encoding() == Encoding::raw16) ++facts.raw16_matrices;
    if (record.original.shape.size() == 3) record.offsets.push_back(record.end);
    write_matrix(plan, place + record.end, out);
    record.end += align_matrix(header.total_bytes);
  };
  const auto n = static_cast<std::int64_t>(record.n);
  const auto k = static_cast<std::int64_t>(record.k);
  if (record.original.dtype == "F32") {
    append(codec::PackPlan(values<float>(dense), n, k, options));
    return true;
  }
  if (record.original.dtype == "F16" &&
      !fp16_to_bf16({reinterpret_cast<std::uint16_t*>(dense.data()), dense.size() / 2})) {
    return false;
  }
  append(codec::PackPlan(values<std::uint16_t>(dense), n, k, options));
  return true;
}

}  // namespace slimgemm::checkpoint
