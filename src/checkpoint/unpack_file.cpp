// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/file_io.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/packed_file.hpp"
#include "support/aligned_buffer.hpp"
#include "support/memory_keeper.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>

namespace slimgemm::checkpoint {
namespace {

// Records in the order in which they lie in the packed file: it is read front to back.
std::vector<const TensorRecord*> by_place(const std::vector<TensorRecord>& records) {
  std::vector<const TensorRecord*> sorted;
  sorted.reserve(records.size());
  for (const TensorRecord& record : records) sorted.push_back(&record);
  std::stable_sort(sorted.begin(), sorted.end(), [](const TensorRecord* a, const TensorRecord* b) {
    return a->begin < b->begin;
  });
  return sorted;
}

// The stored tensor as restore_tensor() wants it.
Tensor stored_tensor(const TensorRecord& record) {
  return {.name = record.stored_name(),
          .dtype = record.packed ? "U8" : record.original.dtype,
          .shape = {},
          .begin = record.begin,
          .end = record.end};
}

// The byte at which two runs of the same length differ, or nothing.
std::optional<std::size_t> first_difference(std::span<const std::byte> a,
                                            std::span<const std::byte> b) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return std::nullopt;
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

// Compares what is restored with the original file, a piece at a time.
class Comparison {
 public:
  Comparison(const SafetensorsFile& original, const Tensor& tensor)
      : original_(original), tensor_(tensor) {}

  void operator()(std::uint64_t offset, std::span<const std::byte> bytes) {
    constexpr std::size_t piece_bytes = std::size_t{1} << 22;
    if (!buffer_) buffer_ = std::make_unique<AlignedBuffer>(std::min(piece_bytes, bytes.size()));
    while (!bytes.empty() && !difference_) {
      const std::span<std::byte> piece(buffer_->data(), std::min(buffer_->size(), bytes.size()));
      original_.read(tensor_, offset, piece);
      if (const auto at = first_difference(bytes.first(piece.size()), piece)) {
        difference_ = offset + *at;
      }
      bytes = bytes.subspan(piece.size());
      offset += piece.size();
    }
  }

  [[nodiscard]] std::optional<std::uint64_t> difference() const { return difference_; }

 private:
  const SafetensorsFile& original_;
  const Tensor& tensor_;
  std::unique_ptr<AlignedBuffer> buffer_;
  std::optional<std::uint64_t> difference_;
};

std::string without_path(const std::string& message, const std::string& path) {
  const std::string prefix = path + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

}  // namespace

void unpack_file(const PackedFile& packed, const std::string& working, Meter& meter) {
  packed.require_sound();
  const SafetensorsFile& file = packed.file();
  OutputFile out(working);
  ReadAhead ahead(file.descriptor(), file.file_bytes());
  const std::string& text = packed.original_header_text();
  const std::uint64_t header_bytes = text.size();
  out.write_at(0, std::as_bytes(std::span(&header_bytes, 1)));
  out.write_at(length_bytes, std::as_bytes(std::span(text)));
  const std::uint64_t data_begin = length_bytes + header_bytes;
  const MemoryKeeper keeper;
  Scratch scratch;
  for (const TensorRecord* record : by_place(packed.records())) {
    ahead.advance(file.header().data_begin() + record->begin);
    const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      out.write_at(data_begin + record->original.begin + offset, bytes);
    };
    try {
      restore_tensor(file, stored_tensor(*record), *record, sink, meter, scratch);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt_data) throw;
      throw Error(error.code(), fmt::format("{}: {}", file.path(), error.what()));
    }
  }
  out.finish();
}

namespace {

// Opens both files; null and a problem where the packed one or the original cannot be read as such.
std::unique_ptr<PackedFile> open_for_verification(const VerifyRequest& request,
                                                  std::unique_ptr<SafetensorsFile>& original,
                                                  std::vector<std::string>& problems) {
  const auto report = [&](const std::string& problem) {
    problems.push_back(fmt::format("{}: {}", request.label, problem));
  };
  try {
    auto packed = std::make_unique<PackedFile>(request.path);
    for (const std::string& problem : packed->problems()) report(problem);
    if (!request.header_xxh3.empty() && packed->seal_digits() != request.header_xxh3) {
      report(fmt::format("its header has the checksum {}: the manifest says {}",
                         printable(packed->seal_digits()), request.header_xxh3));
    }
    if (request.against.empty()) return packed;
    original = std::make_unique<SafetensorsFile>(request.against);
    if (original->header_text() != packed->original_header_text()) {
      report(fmt::format("its original header is not that of {}", request.against));
      original = nullptr;
    }
    return packed;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::corrupt_data) throw;
    report(without_path(error.what(), request.path));
    return nullptr;
  }
}

}  // namespace

void verify_file(const VerifyRequest& request, Meter& meter, VerifySummary& summary) {
  ++summary.files;
  std::unique_ptr<SafetensorsFile> original;
  const auto packed = open_for_verification(request, original, summary.problems);
  if (!packed) return;
  const SafetensorsFile& file = packed->file();
  ReadAhead ahead(file.descriptor(), file.file_bytes());
  const MemoryKeeper keeper;
  Scratch scratch;
  for (const TensorRecord* record : by_place(packed->records())) {
    ahead.advance(file.header().data_begin() + record->begin);
    std::optional<Comparison> comparison;
    if (original) comparison.emplace(*original, record->original);
    const Sink sink = [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      if (comparison) (*comparison)(offset, bytes);
    };
    const auto report = [&](const std::string& problem) {
      summary.problems.push_back(fmt::format("{}: {}", request.label, problem));
    };
    try {
      restore_tensor(file, stored_tensor(*record), *record, sink, meter, scratch);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt_data) throw;
      report(error.what());
    }
    if (comparison && comparison->difference()) {
      report(fmt::format("tensor {} differs from {} at byte {} of it",
                         printable(record->original.name), request.against,
                         *comparison->difference()));
    }
    ++summary.tensors;
  }
  summary.bytes += file.file_bytes();
}

}  // namespace slimgemm::checkpoint
