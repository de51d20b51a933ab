// SPDX-License-Identifier: Apache-2.0
// A checkpoint seen as a model: all tensors of a safetensors file or a directory of them, packed or
// not. Only headers are read here.
#pragma once

#include "checkpoint/packed_header.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/selection.hpp"
#include "inspect/model_config.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace slimgemm::inspect {

struct ModelTensor {
  checkpoint::Tensor original;  ///< as in the checkpoint before packing; [begin, end) there
  checkpoint::Tensor stored;    ///< as it lies in the file
  std::size_t file = 0;         ///< index of Model::files()
  bool packed = false;          ///< in the file
  /// What pack does with it: for a packed one, what it did.
  checkpoint::Selection selection;
  std::vector<std::uint64_t> offsets;  ///< packed: where each matrix begins in it
  bool is_linear = false;              ///< a linear layer multiplies with it, whatever its dtype
  bool is_expert = false;              ///< of a mixture of experts: a token needs a part of them
  std::optional<std::int64_t> layer;   ///< number in its name, "model.layers.12.": 12

  /// Bytes of the packed matrix i: [offsets[i], end of it).
  [[nodiscard]] std::uint64_t matrix_end(std::size_t i) const {
    return i + 1 < offsets.size() ? offsets[i + 1] : stored.size_bytes();
  }
};

class Model {
 public:
  /// Opens a file, or a directory: the shards of its model.safetensors.index.json, or its
  /// model.safetensors, or all its *.safetensors. config.json is read where there is one.
  /// Errors: io_error naming the path; corrupt_data naming file and tensor for headers that are not
  /// sound, missing shards, tensors in two of them, or a packed file of another version;
  /// unsupported in a build without JSON or XXH3.
  explicit Model(const std::string& path);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool is_directory() const { return is_directory_; }
  /// In the order of the files and of the data in each.
  [[nodiscard]] const std::vector<ModelTensor>& tensors() const { return tensors_; }
  /// Null if there is no tensor of that name, which may be its name before packing.
  [[nodiscard]] const ModelTensor* find(const std::string& name) const;
  [[nodiscard]] std::size_t file_count() const { return files_.size(); }
  [[nodiscard]] const checkpoint::SafetensorsFile& file(std::size_t index) const;
  [[nodiscard]] const std::optional<ModelConfig>& config() const { return config_; }
  /// Some tensor is packed.
  [[nodiscard]] bool is_packed() const;
  [[nodiscard]] std::uint64_t original_bytes() const;       ///< of all tensors before packing
  [[nodiscard]] std::uint64_t original_file_bytes() const;  ///< of all files before packing
  [[nodiscard]] std::uint64_t packed_file_bytes() const;    ///< packed, or as pack expects
  [[nodiscard]] std::uint64_t stored_bytes() const;         ///< of all tensors as they lie here

 private:
  struct File {  // one of the two
    std::unique_ptr<checkpoint::SafetensorsFile> plain;
    std::unique_ptr<checkpoint::PackedFile> packed;
  };

  void open(const std::string& path);
  void require_tensors(const std::vector<std::string>& names) const;
  void add_plain(const checkpoint::SafetensorsFile& file);
  void add_packed(const checkpoint::PackedFile& file);
  void classify(ModelTensor& tensor) const;
  void check_names() const;

  std::string path_;
  bool is_directory_ = false;
  std::optional<ModelConfig> config_;
  checkpoint::SelectOptions options_;
  std::vector<File> files_;
  std::vector<ModelTensor> tensors_;
};

/// "12" of "model.layers.12.mlp.up_proj.weight": the first part of the name that is a number.
std::optional<std::int64_t> layer_of(const std::string& name);

}  // namespace slimgemm::inspect
