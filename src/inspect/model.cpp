// SPDX-License-Identifier: Apache-2.0
#include "inspect/model.hpp"

#include "checkpoint/file_io.hpp"
#include "checkpoint/packed_file.hpp"
#include "inspect/shards.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <numeric>
#include <string_view>
#include <unordered_set>

namespace slimgemm::inspect {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t config_bytes_max = 10'000'000;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <class Size>
std::uint64_t sum(const std::vector<ModelTensor>& tensors, Size size) {
  return std::accumulate(
      tensors.begin(), tensors.end(), std::uint64_t{0},
      [&](std::uint64_t total, const ModelTensor& tensor) { return total + size(tensor); });
}

}  // namespace

std::optional<std::int64_t> layer_of(const std::string& name) {
  std::string_view rest = name;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error == std::errc() && end == part.data() + part.size() && number >= 0) return number;
  }
  return std::nullopt;
}

Model::Model(const std::string& path) : path_(path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    throw Error(ErrorCode::io_error, fmt::format("{}: there is no such file or directory", path));
  }
  is_directory_ = fs::is_directory(status);
  const fs::path folder = is_directory_ ? fs::path(path) : fs::path(path).parent_path();
  const fs::path config = folder / "config.json";
  if (fs::exists(config, error)) {
    config_ =
        parse_config(checkpoint::read_text(config.string(), config_bytes_max), config.string());
    options_.tied_embeddings = config_->tie_word_embeddings;
  }
  if (!is_directory_) {
    open(path);
  } else {
    for (const auto& [name, tensors] : find_shards(path)) {
      open((folder / name).string());
      require_tensors(tensors);
    }
  }
  check_names();
}

void Model::open(const std::string& path) {
  auto plain = std::make_unique<checkpoint::SafetensorsFile>(path);
  if (!checkpoint::is_packed(plain->header())) {
    add_plain(*plain);
    files_.push_back({std::move(plain), nullptr});
    return;
  }
  plain.reset();
  auto packed = std::make_unique<checkpoint::PackedFile>(path);
  packed->require_sound();
  add_packed(*packed);
  files_.push_back({nullptr, std::move(packed)});
}

void Model::require_tensors(const std::vector<std::string>& names) const {
  const checkpoint::SafetensorsFile& last = file(files_.size() - 1);
  std::unordered_set<std::string_view> there;
  for (const checkpoint::Tensor& tensor : last.header().tensors) there.insert(tensor.name);
  for (const std::string& name : names) {
    if (there.count(name) != 0) continue;
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{} has no tensor {}, which the index says it has", last.path(),
                            checkpoint::printable(name)));
  }
}

void Model::add_plain(const checkpoint::SafetensorsFile& file) {
  for (const checkpoint::Tensor& tensor : file.header().tensors) {
    ModelTensor added;
    added.original = tensor;
    added.stored = tensor;
    added.file = files_.size();
    added.selection = checkpoint::select(tensor, options_);
    classify(added);
    tensors_.push_back(std::move(added));
  }
}

void Model::add_packed(const checkpoint::PackedFile& file) {
  for (const checkpoint::TensorRecord& record : file.records()) {
    ModelTensor added;
    added.original = record.original;
    added.stored = {record.stored_name(),
                    record.packed ? "U8" : record.original.dtype,
                    {},
                    record.begin,
                    record.end};
    added.file = files_.size();
    added.packed = record.packed;
    if (record.packed) {
      added.selection = {true, "", record.matrices, record.n, record.k};
      added.offsets = record.offsets;
      if (added.offsets.empty()) added.offsets = {0};
    } else {
      added.selection = checkpoint::select(record.original, options_);
      if (added.selection.packed) {
        added.selection = {};
        added.selection.why = "kept when the file was packed";
      }
    }
    classify(added);
    tensors_.push_back(std::move(added));
  }
}

void Model::classify(ModelTensor& tensor) const {
  checkpoint::Tensor as_bf16 = tensor.original;
  as_bf16.dtype = "BF16";
  tensor.is_linear = tensor.packed || checkpoint::select(as_bf16, options_).packed;
  const std::string& name = tensor.original.name;
  tensor.is_expert = tensor.is_linear && contains(name, "expert") &&
                     !contains(name, "shared_expert") && !contains(name, "expert_gate");
  tensor.layer = layer_of(name);
}

void Model::check_names() const {
  std::map<std::string_view, std::size_t> seen;
  for (const ModelTensor& tensor : tensors_) {
    const auto [found, is_new] = seen.emplace(tensor.original.name, tensor.file);
    if (is_new) continue;
    throw Error(ErrorCode::corrupt_data,
                fmt::format("tensor {} is in {} and in {}: a model has every tensor once",
                            checkpoint::printable(tensor.original.name), file(found->second).path(),
                            file(tensor.file).path()));
  }
}

const ModelTensor* Model::find(const std::string& name) const {
  for (const ModelTensor& tensor : tensors_) {
    if (tensor.original.name == name || tensor.stored.name == name) return &tensor;
  }
  return nullptr;
}

const checkpoint::SafetensorsFile& Model::file(std::size_t index) const {
  const File& file = files_[index];
  return file.plain ? *file.plain : file.packed->file();
}

bool Model::is_packed() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const File& file) { return file.packed != nullptr; });
}

std::uint64_t Model::original_file_bytes() const {
  std::uint64_t bytes = 0;
  for (const File& file : files_) {
    bytes += file.plain ? file.plain->file_bytes() : file.packed->original_bytes();
  }
  return bytes;
}

std::uint64_t Model::packed_file_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < files_.size(); ++i) {
    std::vector<checkpoint::Selection> selections;
    if (files_[i].plain) selections = checkpoint::select_all(file(i).header(), options_);
    const bool packs = std::any_of(selections.begin(), selections.end(),
                                   [](const auto& selection) { return selection.packed; });
    bytes += packs ? checkpoint::expected_bytes(file(i), selections) : file(i).file_bytes();
  }
  return bytes;
}

std::uint64_t Model::original_bytes() const {
  return sum(tensors_, [](const ModelTensor& tensor) { return tensor.original.size_bytes(); });
}

std::uint64_t Model::stored_bytes() const {
  return sum(tensors_, [](const ModelTensor& tensor) { return tensor.stored.size_bytes(); });
}

}  // namespace slimgemm::inspect
