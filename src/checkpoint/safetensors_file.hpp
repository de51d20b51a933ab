// SPDX-License-Identifier: Apache-2.0
// A safetensors file that is open for reading.
#pragma once

#include "checkpoint/safetensors_header.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace slimgemm::checkpoint {

/// Opens a file and checks its header; tensors are read one by one. Any number of threads may read.
class SafetensorsFile {
 public:
  /// Errors: io_error where it can't be opened or read; corrupt_data and unsupported as
  /// parse_header().
  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::uint64_t file_bytes() const { return file_bytes_; }
  [[nodiscard]] const SafetensorsHeader& header() const { return header_; }
  /// The JSON text as it lies in the file, padding included.
  [[nodiscard]] const std::string& header_text() const { return header_text_; }
  [[nodiscard]] int descriptor() const { return descriptor_; }

  /// Reads `to.size()` bytes of the tensor's data from byte `offset` of it.
  /// Errors: invalid_argument beyond its end; io_error.
  void read(const Tensor& tensor, std::uint64_t offset, std::span<std::byte> to) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t file_bytes_ = 0;
  std::string header_text_;
  SafetensorsHeader header_;
};

}  // namespace slimgemm::checkpoint
