// SPDX-License-Identifier: Apache-2.0
// The format: 8 bytes little-endian header size, a JSON header of {name: {dtype, shape,
// data_offsets}}, then the tensors' bytes without gaps. The file is untrusted: every number is
// checked before it is used.
#include "judge/safetensors.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#if SLIMGEMM_HAVE_JSON

#include "support/bf16.hpp"
#include "support/checks.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

namespace slimgemm::judge {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie");

constexpr std::uint64_t header_bytes_max = 100'000'000;
constexpr std::uint64_t length_bytes = 8;

struct Tensor {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) throw Error(ErrorCode::io_error, fmt::format("cannot open {}", path));
    file_.seekg(0, std::ios::end);
    const auto size = file_.tellg();
    if (size < 0) throw Error(ErrorCode::io_error, fmt::format("cannot read {}", path));
    size_bytes_ = static_cast<std::uint64_t>(size);
    parse_header(read_header());
    check_layout();
  }

  [[nodiscard]] const Tensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }

  template <typename Element>
  std::vector<Element> read(const Tensor& tensor) {
    const std::uint64_t bytes = tensor.end - tensor.begin;
    std::vector<Element> values(bytes / sizeof(Element));
    read_bytes(data_begin_ + tensor.begin, values.data(), bytes);
    return values;
  }

 private:
  [[noreturn]] void corrupt(const std::string& what) const {
    throw Error(ErrorCode::corrupt_data,
                fmt::format("{} is not a sound safetensors file: {}", path_, what));
  }

  void read_bytes(std::uint64_t offset, void* to, std::uint64_t bytes) {
    file_.seekg(static_cast<std::streamoff>(offset));
    file_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
    if (!file_) {
      throw Error(ErrorCode::io_error,
                  fmt::format("cannot read {} bytes at offset {} of {}", bytes, offset, path_));
    }
  }

  std::string read_header() {
    if (size_bytes_ < length_bytes) {
      corrupt(fmt::format("it has {} bytes, fewer than the 8 of the header's size", size_bytes_));
    }
    std::uint64_t header_bytes = 0;
    read_bytes(0, &header_bytes, length_bytes);
    if (header_bytes > header_bytes_max) {
      corrupt(fmt::format("its header has {} bytes, more than {}", header_bytes, header_bytes_max));
    }
    if (header_bytes > size_bytes_ - length_bytes) {
      corrupt(fmt::format("its header has {} bytes, but only {} follow", header_bytes,
                          size_bytes_ - length_bytes));
    }
    data_begin_ = length_bytes + header_bytes;
    std::string header(header_bytes, '\0');
    read_bytes(length_bytes, header.data(), header_bytes);
    return header;
  }

  void parse_header(const std::string& text) {
    using nlohmann::json;
    std::set<std::string> names;
    const auto reject_duplicates = [&](int depth, json::parse_event_t event, json& value) {
      if (event == json::parse_event_t::key && depth == 1 &&
          !names.insert(value.get<std::string>()).second) {
        corrupt(fmt::format("the tensor {} appears twice", value.get<std::string>()));
      }
      return true;
    };
    json header;
    try {
      header = json::parse(text, reject_duplicates);
    } catch (const json::exception& error) {
      corrupt(fmt::format("its header is not JSON: {}", error.what()));
    }
    if (!header.is_object()) corrupt("its header is not a JSON object");
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") tensors_.emplace(name, parse_tensor(name, entry));
    }
  }

  template <typename Json>
  Tensor parse_tensor(const std::string& name, const Json& entry) const {
    const auto is_size = [](const Json& value) { return value.is_number_unsigned(); };
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
        !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
        !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2 ||
        !std::all_of(entry["shape"].begin(), entry["shape"].end(), is_size) ||
        !std::all_of(entry["data_offsets"].begin(), entry["data_offsets"].end(), is_size)) {
      corrupt(
          fmt::format("the entry of tensor {} needs dtype (a string), shape (sizes) and "
                      "data_offsets (two sizes)",
                      name));
    }
    Tensor tensor;
    tensor.dtype = entry["dtype"].template get<std::string>();
    tensor.shape = entry["shape"].template get<std::vector<std::uint64_t>>();
    tensor.begin = entry["data_offsets"][0].template get<std::uint64_t>();
    tensor.end = entry["data_offsets"][1].template get<std::uint64_t>();
    return tensor;
  }

  // The tensors cover the data without gap or overlap.
  void check_layout() const {
    std::vector<std::pair<std::string, Tensor>> ordered(tensors_.begin(), tensors_.end());
    std::sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) {
      return std::pair(a.second.begin, a.second.end) < std::pair(b.second.begin, b.second.end);
    });
    std::uint64_t position = 0;
    for (const auto& [name, tensor] : ordered) {
      if (tensor.begin != position || tensor.end < tensor.begin) {
        corrupt(fmt::format("tensor {} lies at bytes {} to {}, but the one before ends at {}", name,
                            tensor.begin, tensor.end, position));
      }
      position = tensor.end;
    }
    if (position != size_bytes_ - data_begin_) {
      corrupt(fmt::format("its tensors end at byte {} of {} bytes of data", position,
                          size_bytes_ - data_begin_));
    }
  }

  std::string path_;
  std::ifstream file_;
  std::uint64_t size_bytes_ = 0;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Tensor> tensors_;
};

[[noreturn]] void refuse(const std::string& path, const LayerInfo& layer, const std::string& what) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: tensor {} {}", path, layer.name, what));
}

const Tensor& find_layer(const SafetensorsFile& file, const std::string& path,
                         const LayerInfo& layer) {
  const std::string layer_name(layer.name);
  const Tensor* tensor = file.find(layer_name);
  if (tensor == nullptr) tensor = file.find(layer_name + ".weight");
  if (tensor == nullptr) {
    refuse(path, layer, fmt::format("is missing, and so is {}.weight", layer.name));
  }
  const bool f32_layer = layer.dtype == DType::f32;
  if (tensor->dtype != "BF16" && !(f32_layer && tensor->dtype == "F32")) {
    refuse(path, layer,
           fmt::format("is {}; it must be {}", tensor->dtype, f32_layer ? "F32 or BF16" : "BF16"));
  }
  const std::vector<std::uint64_t> expected{static_cast<std::uint64_t>(layer.n),
                                            static_cast<std::uint64_t>(layer.k)};
  if (tensor->shape != expected) {
    refuse(path, layer,
           fmt::format("has shape [{}]; it must be [{}, {}]", fmt::join(tensor->shape, ", "),
                       layer.n, layer.k));
  }
  const std::uint64_t element = tensor->dtype == "F32" ? 4 : 2;
  const auto count = checked_multiply(expected[0], expected[1]);
  const auto bytes = count ? checked_multiply(*count, element) : std::nullopt;
  if (!bytes || *bytes != tensor->end - tensor->begin) {
    refuse(path, layer,
           fmt::format("takes {} bytes, but its shape and dtype make {}",
                       tensor->end - tensor->begin, bytes.value_or(0)));
  }
  return *tensor;
}

template <typename Element, typename ToFloat>
void require_finite(const std::vector<Element>& values, const std::string& path,
                    const LayerInfo& layer, ToFloat to_float) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(to_float(values[i]))) continue;
    const auto k = static_cast<std::size_t>(layer.k);
    refuse(path, layer,
           fmt::format("holds {} at row {}, column {}; the judge needs finite weights",
                       to_float(values[i]), i / k, i % k));
  }
}

}  // namespace

Weights load_safetensors(const std::string& path, const LayerTable& table) {
  SafetensorsFile file(path);
  Weights weights;
  weights.matrices.resize(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const LayerInfo& layer = table[i];
    const Tensor& tensor = find_layer(file, path, layer);
    Weights::Matrix& matrix = weights.matrices[i];
    if (tensor.dtype == "F32") {
      matrix.f32 = file.read<float>(tensor);
      require_finite(matrix.f32, path, layer, [](float value) { return value; });
      continue;
    }
    matrix.bf16 = file.read<std::uint16_t>(tensor);
    require_finite(matrix.bf16, path, layer, bf16_to_float);
    if (layer.dtype == DType::f32) {
      matrix.f32.resize(matrix.bf16.size());
      std::transform(matrix.bf16.begin(), matrix.bf16.end(), matrix.f32.begin(), bf16_to_float);
      matrix.bf16.clear();
    }
  }
  weights.origin = "file " + path;
  return weights;
}

}  // namespace slimgemm::judge

#else

namespace slimgemm::judge {

Weights load_safetensors(const std::string& path, const LayerTable&) {
  throw Error(ErrorCode::unsupported,
              fmt::format("cannot read {}: this build has no JSON reader. Install "
                          "nlohmann-json3-dev, configure and build again",
                          path));
}

}  // namespace slimgemm::judge

#endif
