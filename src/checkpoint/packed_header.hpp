// SPDX-License-Identifier: Apache-2.0
// The header of a packed safetensors file (docs/format.md, "Packed checkpoints"): written from
// records, and read back into them.
#pragma once

#include "checkpoint/packed_tensor.hpp"
#include "checkpoint/safetensors_file.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace slimgemm::checkpoint {

/// The version of the container. A reader refuses any other.
inline constexpr std::string_view container_version = "1";
/// The keys of "__metadata__" that the container adds all begin so.
inline constexpr std::string_view key_prefix = "slimgemm.";
inline constexpr std::string_view version_key = "slimgemm.format";
inline constexpr std::string_view original_header_key = "slimgemm.original_header";
inline constexpr std::string_view original_bytes_key = "slimgemm.original_bytes";
inline constexpr std::string_view record_prefix = "slimgemm.tensor.";
inline constexpr std::string_view header_seal_key = "slimgemm.header_xxh3";

/// How many bytes to leave for the file's beginning (size, JSON text and padding) before the
/// records are known: enough whatever they turn out to be. A multiple of 4096. Errors:
/// invalid_argument where the header would exceed the format's 100 MB.
std::uint64_t reserve_header(const SafetensorsFile& source,
                             const std::vector<TensorRecord>& planned);

/// The file's first `bytes` bytes: size, JSON text, padding, sealed. Records are in the order of
/// their data.
std::string write_header(const SafetensorsFile& source, const std::vector<TensorRecord>& records,
                         std::uint64_t bytes);

/// A packed file that is open for reading, with its records checked against its tensors.
class PackedFile {
 public:
  /// Errors: io_error; corrupt_data where the file is no sound safetensors file, not packed, of
  /// another version, or without a readable original header. Everything else that is wrong is in
  /// problems().
  explicit PackedFile(const std::string& path);

  /// What is wrong with the header and the records, one sentence each; empty if nothing is.
  [[nodiscard]] const std::vector<std::string>& problems() const { return problems_; }
  /// Throws Error(corrupt_data) naming the first problem, if there is one.
  void require_sound() const;

  [[nodiscard]] const SafetensorsFile& file() const { return file_; }
  [[nodiscard]] const std::string& original_header_text() const { return original_text_; }
  [[nodiscard]] const SafetensorsHeader& original_header() const { return original_; }
  [[nodiscard]] std::uint64_t original_bytes() const { return original_bytes_; }
  /// In the order of the original data. Those of tensors with problems are left out.
  [[nodiscard]] const std::vector<TensorRecord>& records() const { return records_; }
  /// The digits of the header's seal, or "" where it is missing.
  [[nodiscard]] const std::string& seal_digits() const { return seal_digits_; }

 private:
  void read_original();
  void check_metadata();
  void read_records();
  void read_record(const Tensor& original, const std::string& text);
  void check_records();
  void check_other_tensors();

  SafetensorsFile file_;
  std::string original_text_;
  SafetensorsHeader original_;
  std::uint64_t original_bytes_ = 0;
  std::string seal_digits_;
  std::vector<TensorRecord> records_;
  std::unordered_map<std::string_view, const Tensor*> stored_;  // the tensors that no record has
  std::vector<TensorRecord> missing_;                           // whose tensor is not there
  std::vector<std::string> problems_;
};

/// True if the file's metadata says that it was packed.
bool is_packed(const SafetensorsHeader& header);

}  // namespace slimgemm::checkpoint
