// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/errors.hpp"
#include "checkpoint/packed_header.hpp"
#include "checkpoint/xxh3.hpp"
#include "support/checks.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <cstring>
#include <limits>

namespace slimgemm::checkpoint {
namespace {

constexpr std::uint64_t header_alignment = 4096;

std::string json_string(std::string_view text) { return nlohmann::json(text).dump(); }

std::string shape_text(const std::vector<std::uint64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ","));
}

std::string record_text(const TensorRecord& record) {
  if (!record.packed) return fmt::format(R"({{"xxh3":"{}"}})", hex(record.xxh3));
  std::string offsets;
  if (!record.offsets.empty()) {
    offsets = fmt::format(R"(,"offsets":[{}])", fmt::join(record.offsets, ","));
  }
  return fmt::format(R"({{"stored":{},"dtype":{},"shape":{},"encoding":"{}"{},"xxh3":"{}"}})",
                     json_string(record.stored_name()), json_string(record.original.dtype),
                     shape_text(record.original.shape), record.encoding, offsets, hex(record.xxh3));
}

std::string json_text(const SafetensorsFile& source, const std::vector<TensorRecord>& records) {
  std::string text = R"({"__metadata__":{)";
  const auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{}:{},", json_string(key), json_string(value));
  };
  for (const auto& [key, value] : source.header().metadata) add(key, value);
  add(version_key, container_version);
  add(original_bytes_key, std::to_string(source.file_bytes()));
  for (const TensorRecord& record : records) {
    add(fmt::format("{}{}", record_prefix, record.original.name), record_text(record));
  }
  add(original_header_key, source.header_text());
  add(header_seal_key, unsealed);
  text.back() = '}';
  for (const TensorRecord& record : records) {
    const bool packed = record.packed;
    text += fmt::format(
        R"(,{}:{{"dtype":{},"shape":{},"data_offsets":[{},{}]}})",
        json_string(record.stored_name()), json_string(packed ? "U8" : record.original.dtype),
        packed ? fmt::format("[{}]", record.end - record.begin) : shape_text(record.original.shape),
        record.begin, record.end);
  }
  return text + "}";
}

[[noreturn]] void refuse_size(const SafetensorsFile& source, const std::string& size) {
  refuse(
      fmt::format("{}: the packed file's header would have {}, more than the format's {}; "
                  "split the file into shards of fewer tensors",
                  source.path(), size, header_bytes_max));
}

}  // namespace

std::uint64_t reserve_header(const SafetensorsFile& source,
                             const std::vector<TensorRecord>& planned) {
  // More than any place in the packed file: padding makes a matrix about a thousand times as large
  // at most, exceptions five times.
  const std::uint64_t longest = checked_multiply(source.file_bytes(), std::uint64_t{1} << 13)
                                    .value_or(std::numeric_limits<std::uint64_t>::max());
  std::uint64_t offsets = 0;  // each at least a digit and a comma
  for (const TensorRecord& record : planned) offsets += record.packed ? record.matrices : 0;
  if (offsets > header_bytes_max / 2) refuse_size(source, fmt::format("{} offsets", offsets));
  std::vector<TensorRecord> records = planned;
  for (TensorRecord& record : records) {
    record.encoding = "split12";
    record.end = longest;
    if (record.original.shape.size() == 3 && record.packed) {
      record.offsets.assign(record.matrices, longest);
    }
  }
  // An offset has as many digits as the end at most, and begin as many as the end before it.
  const std::uint64_t slack = records.size() * std::to_string(longest).size();
  const std::uint64_t bytes = length_bytes + json_text(source, records).size() + slack;
  // Whole pages: the data can be read and written past the system's cache.
  const std::uint64_t aligned =
      (bytes + header_alignment - 1) / header_alignment * header_alignment;
  if (aligned - length_bytes > header_bytes_max) {
    refuse_size(source, fmt::format("{} bytes", aligned - length_bytes));
  }
  return aligned;
}

std::string write_header(const SafetensorsFile& source, const std::vector<TensorRecord>& records,
                         std::uint64_t bytes) {
  std::string text = json_text(source, records);
  text.resize(bytes - length_bytes, ' ');
  const std::uint64_t size = text.size();
  text.insert(0, length_bytes, '\0');
  std::memcpy(text.data(), &size, sizeof(size));
  seal(text, header_seal_key);
  return text;
}

}  // namespace slimgemm::checkpoint
