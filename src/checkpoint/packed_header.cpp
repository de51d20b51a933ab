// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_header.hpp"

#include "checkpoint/errors.hpp"
#include "checkpoint/xxh3.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_set>

namespace slimgemm::checkpoint {
namespace {

using nlohmann::json;

const std::string* find_value(const SafetensorsHeader& header, std::string_view key) {
  const auto found = header.metadata.find(std::string(key));
  return found == header.metadata.end() ? nullptr : &found->second;
}

std::optional<std::uint64_t> parse_number(std::string_view text, int base) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Fills the record from its JSON text; returns what is wrong with it, or "".
std::string parse_record(const std::string& text, TensorRecord& record) {
  const json value = json::parse(text, nullptr, false);
  if (!value.is_object()) return "is not a JSON object";
  const auto string = [&](const char* key) -> std::optional<std::string> {
    const auto found = value.find(key);
    if (found == value.end() || !found->is_string()) return std::nullopt;
    return found->get<std::string>();
  };
  const auto digits = string("xxh3");
  const auto xxh3 = digits && digits->size() == 16 ? parse_number(*digits, 16) : std::nullopt;
  if (!xxh3) return "has no xxh3 of 16 hexadecimal digits";
  record.xxh3 = *xxh3;
  record.packed = value.contains("stored");
  if (!record.packed) return value.size() == 1 ? "" : "has fields beside xxh3";

  const bool is_stack = record.original.shape.size() == 3;
  if (string("stored") != record.stored_name()) return "names another tensor in stored";
  if (string("dtype") != record.original.dtype) return "has another dtype than the original";
  if (!value.contains("shape") || value["shape"] != json(record.original.shape)) {
    return "has another shape than the original";
  }
  const auto encoding = string("encoding");
  if (!encoding) return "has no encoding";
  record.encoding = *encoding;
  if (value.size() != (is_stack ? 6U : 5U)) return "has fields that version 1 does not know";
  if (!is_stack) return "";
  const auto offsets = value.find("offsets");
  if (offsets == value.end() || !offsets->is_array() ||
      !std::all_of(offsets->begin(), offsets->end(),
                   [](const json& offset) { return offset.is_number_unsigned(); })) {
    return "has no offsets of its matrices";
  }
  record.offsets = offsets->get<std::vector<std::uint64_t>>();
  return "";
}

// Sets the record's matrices from the original's shape; returns what is wrong with it, or "".
std::string set_matrices(TensorRecord& record) {
  const auto& shape = record.original.shape;
  if (shape.size() != 2 && shape.size() != 3) {
    return fmt::format("is packed, but the original has {} dimensions: it must be 2 or 3",
                       shape.size());
  }
  const std::string& dtype = record.original.dtype;
  if (dtype != "BF16" && dtype != "F16" && dtype != "F32") {
    return fmt::format("is packed, but the original is {}: it must be BF16, F16 or F32",
                       printable(dtype));
  }
  if (record.original.size_bytes() == 0) return "is packed, but the original has no elements";
  record.matrices = shape.size() == 3 ? shape[0] : 1;
  record.n = shape[shape.size() - 2];
  record.k = shape[shape.size() - 1];
  if (shape.size() == 3 && record.offsets.size() != record.matrices) {
    return fmt::format("has {} offsets: it must have {}", record.offsets.size(), record.matrices);
  }
  return "";
}

// Whether the tensor can be the one of the record; what is wrong with it, or "".
std::string check_stored(const TensorRecord& record, const Tensor& stored) {
  if (!record.packed) {
    if (stored.dtype == record.original.dtype && stored.shape == record.original.shape &&
        stored.size_bytes() == record.original.size_bytes()) {
      return "";
    }
    return fmt::format("is {} [{}]: the original is {} [{}]", printable(stored.dtype),
                       fmt::join(stored.shape, ", "), printable(record.original.dtype),
                       fmt::join(record.original.shape, ", "));
  }
  if (stored.dtype == "U8" && stored.shape.size() == 1) return "";
  return fmt::format("is {} [{}]: packed tensors are U8 of one dimension", printable(stored.dtype),
                     fmt::join(stored.shape, ", "));
}

}  // namespace

bool is_packed(const SafetensorsHeader& header) {
  return find_value(header, version_key) != nullptr;
}

PackedFile::PackedFile(const std::string& path) : file_(path) {
  const std::string* version = find_value(file_.header(), version_key);
  if (version == nullptr) {
    corrupt(path, fmt::format("it is not a packed file: its metadata has no {}", version_key));
  }
  if (*version != container_version) {
    corrupt(path, fmt::format("it is packed in format {}: this build reads format {} only. Unpack "
                              "it with the version that wrote it, and pack it again",
                              printable(*version), container_version));
  }
  std::string sealed(length_bytes, '\0');
  const std::uint64_t size = file_.header_text().size();
  std::memcpy(sealed.data(), &size, sizeof(size));
  sealed += file_.header_text();
  if (std::string problem = check_seal(sealed, header_seal_key); !problem.empty()) {
    problems_.push_back(fmt::format("the header was changed after it was written: {}", problem));
  }
  if (const std::string* digits = find_value(file_.header(), header_seal_key)) {
    seal_digits_ = *digits;
  }
  read_original();
  check_metadata();
  read_records();
  check_records();
  check_other_tensors();
}

void PackedFile::require_sound() const {
  if (problems_.empty()) return;
  corrupt(file_.path(), problems_.size() == 1
                            ? problems_.front()
                            : fmt::format("{} (and {} more: see slimgemm verify)",
                                          problems_.front(), problems_.size() - 1));
}

void PackedFile::read_original() {
  const std::string* text = find_value(file_.header(), original_header_key);
  const std::string* bytes = find_value(file_.header(), original_bytes_key);
  if (text == nullptr) corrupt(file_.path(), fmt::format("its {} is missing", original_header_key));
  if (bytes == nullptr) corrupt(file_.path(), fmt::format("its {} is missing", original_bytes_key));
  const auto total = parse_number(*bytes, 10);
  if (!total || *total < length_bytes || *total - length_bytes < text->size()) {
    corrupt(file_.path(),
            fmt::format("its {} is {}: it must be at least the header's {}", original_bytes_key,
                        printable(*bytes), length_bytes + text->size()));
  }
  original_text_ = *text;
  original_bytes_ = *total;
  original_ = parse_header(original_text_, *total - length_bytes - text->size(),
                           file_.path() + " (the original header in it)");
}

void PackedFile::check_metadata() {
  for (const auto& [key, value] : original_.metadata) {
    const std::string* kept = find_value(file_.header(), key);
    if (kept == nullptr) {
      problems_.push_back(fmt::format("the metadata entry {} is missing", printable(key)));
    } else if (*kept != value) {
      problems_.push_back(fmt::format("the metadata entry {} was changed", printable(key)));
    }
  }
  for (const auto& [key, value] : file_.header().metadata) {
    const bool own = key == version_key || key == original_header_key ||
                     key == original_bytes_key || key == header_seal_key ||
                     key.starts_with(record_prefix);
    if (!own && original_.metadata.count(key) == 0) {
      problems_.push_back(fmt::format("the metadata entry {} was added", printable(key)));
    }
  }
}

void PackedFile::read_records() {
  for (const Tensor& tensor : file_.header().tensors) stored_.emplace(tensor.name, &tensor);
  for (const Tensor& original : original_.tensors) {
    const std::string* text =
        find_value(file_.header(), fmt::format("{}{}", record_prefix, original.name));
    if (text != nullptr) {
      read_record(original, *text);
      continue;
    }
    problems_.push_back(
        fmt::format("the record of tensor {} is missing", printable(original.name)));
    // Its tensor is there under one of two names.
    if (stored_.erase(original.name) == 0) stored_.erase(packed_name(original.name));
  }
}

void PackedFile::read_record(const Tensor& original, const std::string& text) {
  TensorRecord record{.original = original};
  std::string problem = parse_record(text, record);
  if (problem.empty() && record.packed) problem = set_matrices(record);
  if (!problem.empty()) {
    problems_.push_back(
        fmt::format("the record of tensor {} {}", printable(original.name), problem));
    if (stored_.erase(original.name) == 0) stored_.erase(packed_name(original.name));
    return;
  }
  const std::string name = record.stored_name();
  const auto found = stored_.find(name);
  if (found == stored_.end()) {
    missing_.push_back(std::move(record));
    return;
  }
  const Tensor& stored = *found->second;
  stored_.erase(found);
  problem = check_stored(record, stored);
  if (!problem.empty()) {
    problems_.push_back(fmt::format("tensor {} {}", printable(name), problem));
    return;
  }
  record.begin = stored.begin;
  record.end = stored.end;
  records_.push_back(std::move(record));
}

void PackedFile::check_records() {
  const std::unordered_set<std::string_view> originals = [&] {
    std::unordered_set<std::string_view> names;
    for (const Tensor& tensor : original_.tensors) names.insert(tensor.name);
    return names;
  }();
  for (const auto& [key, value] : file_.header().metadata) {
    if (!key.starts_with(record_prefix)) continue;
    const std::string_view name = std::string_view(key).substr(record_prefix.size());
    if (originals.count(name) == 0) {
      problems_.push_back(
          fmt::format("the record of tensor {} has no tensor in the original", printable(name)));
    }
  }
}

void PackedFile::check_other_tensors() {
  constexpr int most_searches = 100;  // each looks through all tensors
  int searches = 0;
  for (const TensorRecord& record : missing_) {
    // Of the tensors that no record has, one that could be this one under another name.
    const auto& tensors = file_.header().tensors;
    const auto renamed =
        ++searches > most_searches
            ? tensors.end()
            : std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& tensor) {
                return stored_.count(tensor.name) != 0 && check_stored(record, tensor).empty();
              });
    if (renamed == tensors.end()) {
      problems_.push_back(fmt::format("tensor {} is missing", printable(record.stored_name())));
    } else {
      problems_.push_back(fmt::format("tensor {} is missing; was it renamed to {}?",
                                      printable(record.stored_name()), printable(renamed->name)));
      stored_.erase(renamed->name);
    }
  }
  for (const Tensor& tensor : file_.header().tensors) {
    if (stored_.count(tensor.name) != 0) {
      problems_.push_back(
          fmt::format("tensor {} was added: no record names it", printable(tensor.name)));
    }
  }
}

}  // namespace slimgemm::checkpoint
