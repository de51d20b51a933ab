// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file. The format: 8 bytes little-endian header size, a JSON object of
// {name: {dtype, shape, data_offsets}} and an optional "__metadata__" of strings, padded with
// spaces; then the tensors' bytes without gaps. Files are untrusted: every number is checked before
// it is used, and the memory taken is in proportion to the header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimgemm::checkpoint {

/// The format's limit for the JSON text.
inline constexpr std::uint64_t header_bytes_max = 100'000'000;
/// Bytes of the header's size, which the file begins with.
inline constexpr std::uint64_t length_bytes = 8;

struct Tensor {
  std::string name;
  std::string dtype;  ///< as in the file: "BF16", "F32", ...; may be one that is not known here
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< in bytes from the start of the data
  std::uint64_t end = 0;
  [[nodiscard]] std::uint64_t size_bytes() const { return end - begin; }
};

struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;  ///< "__metadata__"; empty where there is none
  std::vector<Tensor> tensors;                  ///< by their place in the data, without gaps
  std::uint64_t header_bytes = 0;               ///< of the JSON text, padding included
  [[nodiscard]] std::uint64_t data_begin() const { return length_bytes + header_bytes; }
  [[nodiscard]] std::uint64_t data_bytes() const {
    return tensors.empty() ? 0 : tensors.back().end;
  }
  /// The tensor of that name, or null.
  [[nodiscard]] const Tensor* find(std::string_view name) const;
};

/// Bits of one element of a dtype of the format, or nothing for an unknown dtype.
std::optional<int> dtype_bits(std::string_view dtype);

/// Elements of a tensor of that shape, or nothing where they do not fit 64 bits.
std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape);

/// A name or value from a file, fit for a message: as visible_text, cut after 200 bytes.
std::string printable(std::string_view name);

/// Throws Error(corrupt_data) unless a file of `file_bytes` bytes can begin with the size
/// `header_bytes` of its header. `file` names it in the message.
void check_header_bytes(std::uint64_t header_bytes, std::uint64_t file_bytes,
                        const std::string& file);

/// Parses the JSON text of a header, padding included, of a file with `data_bytes` bytes behind it.
/// Tensors of an unknown dtype are kept; their size is not checked against their shape.
/// Errors: corrupt_data naming the file, the tensor, the field, its value and the rule: not JSON, a
/// name or field twice, a field missing or of another type, metadata other than strings, sizes that
/// overflow or differ from dtype and shape, tensors that overlap, leave a hole or end elsewhere
/// than the data. unsupported in a build without JSON.
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes,
                               const std::string& file);

}  // namespace slimgemm::checkpoint
