// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/errors.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/packed_file.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

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

// The byte at which two runs of the same length differ, or nothing.
std::optional<std::size_t> first_difference(std::span<const std::byte> a,
                                            std::span<const std::byte> b) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return std::nullopt;
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

// Takes what is restored and compares it with the original file, if there is one.
class Comparison : public PieceSink {
 public:
  Comparison(const SafetensorsFile* original, BufferPool& pieces)
      : original_(original), pieces_(pieces) {}

  void begin(const Tensor& tensor) {
    tensor_ = &tensor;
    offset_ = 0;
    difference_.reset();
  }
  std::span<std::byte> reserve(std::uint64_t, std::uint64_t most) override {
    if (!piece_) piece_ = pieces_.take(Workspace::piece_bytes);
    return {piece_->data(), std::min(most, piece_max())};
  }
  void commit(std::uint64_t size) override {
    if (original_ != nullptr && !difference_) compare({piece_->data(), size});
    offset_ += size;
  }
  [[nodiscard]] std::uint64_t piece_max() const override { return Workspace::piece_bytes; }
  [[nodiscard]] std::optional<std::uint64_t> difference() const { return difference_; }

 private:
  void compare(std::span<const std::byte> bytes) {
    if (!other_) other_ = pieces_.take(Workspace::piece_bytes);
    const std::span<std::byte> theirs(other_->data(), bytes.size());
    original_->read(*tensor_, offset_, theirs);
    if (const auto at = first_difference(bytes, theirs)) difference_ = offset_ + *at;
  }

  const SafetensorsFile* original_;
  BufferPool& pieces_;
  BufferPool::Lease piece_;
  BufferPool::Lease other_;
  const Tensor* tensor_ = nullptr;
  std::uint64_t offset_ = 0;
  std::optional<std::uint64_t> difference_;
};

// Puts the tensors where they belong in the original file; the first problem ends it.
class FileTarget : public RestoreTarget {
 public:
  FileTarget(OutputFile& out, std::uint64_t data_begin, const std::string& path)
      : out_(out), data_begin_(data_begin), path_(path) {}

  PieceSink& begin(const TensorRecord& record) override {
    out_.seek(data_begin_ + record.original.begin);
    return out_;
  }
  void end(const TensorRecord&, const std::string& problem) override {
    if (!problem.empty()) corrupt(path_, problem);
  }

 private:
  OutputFile& out_;
  std::uint64_t data_begin_;
  const std::string& path_;
};

// Collects the problems of all tensors.
class VerifyTarget : public RestoreTarget {
 public:
  VerifyTarget(const VerifyRequest& request, const SafetensorsFile* original, BufferPool& pieces,
               VerifySummary& summary)
      : request_(request), summary_(summary), comparison_(original, pieces) {}

  PieceSink& begin(const TensorRecord& record) override {
    comparison_.begin(record.original);
    return comparison_;
  }
  void end(const TensorRecord& record, const std::string& problem) override {
    if (!problem.empty()) report(problem);
    if (comparison_.difference()) {
      report(fmt::format("tensor {} differs from {} at byte {} of it",
                         printable(record.original.name), request_.against,
                         *comparison_.difference()));
    }
    ++summary_.tensors;
  }

 private:
  void report(const std::string& problem) {
    summary_.problems.push_back(fmt::format("{}: {}", request_.label, problem));
  }

  const VerifyRequest& request_;
  VerifySummary& summary_;
  Comparison comparison_;
};

std::string without_path(const std::string& message, const std::string& path) {
  const std::string prefix = path + ": ";
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

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

void unpack_file(const PackedFile& packed, const std::string& working, Workspace& workspace,
                 Meter& meter) {
  packed.require_sound();
  const SafetensorsFile& file = packed.file();
  OutputFile out(working, workspace.pieces);
  const std::string& text = packed.original_header_text();
  const std::uint64_t header_bytes = text.size();
  out.write(std::as_bytes(std::span(&header_bytes, 1)));
  out.write(std::as_bytes(std::span(text)));
  FileTarget target(out, length_bytes + header_bytes, file.path());
  restore_tensors(file, by_place(packed.records()), workspace, meter, target);
  out.finish();
}

void verify_file(const VerifyRequest& request, Workspace& workspace, Meter& meter,
                 VerifySummary& summary) {
  ++summary.files;
  std::unique_ptr<SafetensorsFile> original;
  const auto packed = open_for_verification(request, original, summary.problems);
  if (!packed) return;
  VerifyTarget target(request, original.get(), workspace.pieces, summary);
  restore_tensors(packed->file(), by_place(packed->records()), workspace, meter, target);
  summary.bytes += packed->file().file_bytes();
}

}  // namespace slimgemm::checkpoint
