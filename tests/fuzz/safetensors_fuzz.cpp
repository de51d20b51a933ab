// SPDX-License-Identifier: Apache-2.0
// Any bytes as a safetensors file to the header's reader: they are refused with
// Error(corrupt_data), or the tensors cover the data without gap or overlap.
#include "checkpoint/safetensors_header.hpp"
#include "checkpoint/selection.hpp"

#include <slimgemm/error.hpp>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

namespace {

using namespace slimgemm;
using namespace slimgemm::checkpoint;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_header(const SafetensorsHeader& header, std::uint64_t data_bytes) {
  std::uint64_t position = 0;
  std::set<std::string> names;
  for (const Tensor& tensor : header.tensors) {
    require(names.insert(tensor.name).second);
    require(tensor.begin == position && tensor.end >= tensor.begin);
    position = tensor.end;
    const auto bits = dtype_bits(tensor.dtype);
    const auto count = element_count(tensor.shape);
    if (bits) {
      require(count.has_value());
      require(*count * static_cast<std::uint64_t>(*bits) == tensor.size_bytes() * 8);
    }
    SelectOptions options;
    options.fp16 = true;
    options.fp32 = true;
    const Selection selection = select(tensor, options);
    require(selection.packed == selection.why.empty());
    if (!selection.packed) continue;
    const std::uint64_t element = tensor.dtype == "F32" ? 4 : 2;
    require(selection.matrices * selection.n * selection.k * element == tensor.size_bytes());
  }
  require(position == data_bytes && header.data_bytes() == data_bytes);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, data, size < sizeof(header_bytes) ? size : sizeof(header_bytes));
    check_header_bytes(header_bytes, size, "fuzzed");
    const std::string_view text(reinterpret_cast<const char*>(data) + length_bytes, header_bytes);
    const std::uint64_t data_bytes = size - length_bytes - header_bytes;
    check_header(parse_header(text, data_bytes, "fuzzed"), data_bytes);
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data);
    require(std::string_view(error.what()).size() < 4096);
  }
  return 0;
}
