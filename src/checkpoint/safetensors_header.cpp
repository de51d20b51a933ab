// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_header.hpp"

#include "support/checks.hpp"
#include "support/visible_text.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#if SLIMGEMM_HAVE_JSON
#include <nlohmann/json.hpp>

#include <unordered_set>
#endif

namespace slimgemm::checkpoint {
namespace {

[[noreturn]] void unsound(const std::string& file, const std::string& what) {
  throw Error(ErrorCode::corrupt_data,
              fmt::format("{} is not a sound safetensors file: {}", file, what));
}

constexpr std::array<std::pair<std::string_view, int>, 22> known_dtypes{
    {{"BOOL", 8},        {"U8", 8},         {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
     {"F8_E8M0", 8},     {"I16", 16},       {"U16", 16}, {"F16", 16},    {"BF16", 16},
     {"I32", 32},        {"U32", 32},       {"F32", 32}, {"I64", 64},    {"U64", 64},
     {"F64", 64},        {"C64", 64},       {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6},
     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}}};

}  // namespace

const Tensor* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [&](const Tensor& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

std::optional<int> dtype_bits(std::string_view dtype) {
  for (const auto& [name, bits] : known_dtypes) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

std::optional<std::uint64_t> element_count(const std::vector<std::uint64_t>& shape) {
  // A zero anywhere makes it zero, whatever the product of the others would be.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  std::uint64_t count = 1;
  for (const std::uint64_t size : shape) {
    const auto product = checked_multiply(count, size);
    if (!product) return std::nullopt;
    count = *product;
  }
  return count;
}

std::string printable(std::string_view name) {
  constexpr std::size_t bytes_max = 200;
  return visible_text(name, bytes_max);
}

void check_header_bytes(std::uint64_t header_bytes, std::uint64_t file_bytes,
                        const std::string& file) {
  if (file_bytes < length_bytes) {
    unsound(file,
            fmt::format("it has {} bytes, fewer than the 8 of the header's size", file_bytes));
  }
  if (header_bytes > header_bytes_max) {
    unsound(file,
            fmt::format("its header has {} bytes, more than {}", header_bytes, header_bytes_max));
  }
  if (header_bytes > file_bytes - length_bytes) {
    unsound(file, fmt::format("its header has {} bytes, but only {} follow", header_bytes,
                              file_bytes - length_bytes));
  }
}

#if SLIMGEMM_HAVE_JSON
namespace {

using nlohmann::json;

// Takes the parser's events one by one: no tree of the whole header is ever built.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& file) : header_(header), file_(file) {}

  bool null() override { return unexpected("null"); }
  bool boolean(bool value) override { return unexpected(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override {
    return unexpected(printable(text));
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ == Place::shape) {
      if (tensor_.shape.size() == rank_max) {
        fail_tensor(fmt::format("shape has more than {} sizes", rank_max));
      }
      tensor_.shape.push_back(value);
      return true;
    }
    if (place_ == Place::offsets) {
      if (offsets_ == 2) fail_tensor("data_offsets has more than two numbers");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = value;
      return true;
    }
    return unexpected(std::to_string(value));
  }

  bool string(string_t& value) override {
    if (place_ == Place::metadata) {
      header_.metadata[key_] = std::move(value);
      return true;
    }
    if (place_ == Place::tensor && key_ == "dtype") {
      tensor_.dtype = std::move(value);
      return true;
    }
    return unexpected(fmt::format("\"{}\"", printable(value)));
  }

  bool start_object(std::size_t) override {
    if (place_ == Place::outside) {
      place_ = Place::top;
    } else if (place_ == Place::top && key_ == "__metadata__") {
      place_ = Place::metadata;
    } else if (place_ == Place::top) {
      place_ = Place::tensor;
      tensor_ = {};
      tensor_.name = key_;
      has_dtype_ = has_shape_ = has_offsets_ = false;
      offsets_ = 0;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(string_t& value) override {
    key_ = std::move(value);
    if (place_ == Place::top) {
      if (!names_.insert(key_).second) {
        unsound(file_, fmt::format("the tensor {} appears twice", printable(key_)));
      }
    } else if (place_ == Place::metadata) {
      if (header_.metadata.count(key_) != 0) {
        unsound(file_, fmt::format("its __metadata__ has {} twice", printable(key_)));
      }
    } else {
      bool* seen = key_ == "dtype"          ? &has_dtype_
                   : key_ == "shape"        ? &has_shape_
                   : key_ == "data_offsets" ? &has_offsets_
                                            : nullptr;
      if (seen == nullptr) {
        fail_tensor(fmt::format("has a field {}: it needs dtype, shape and data_offsets alone",
                                printable(key_)));
      }
      if (*seen) fail_tensor(fmt::format("has {} twice", key_));
      *seen = true;
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::tensor) {
      if (!has_dtype_ || !has_shape_ || !has_offsets_) {
        fail_tensor(fmt::format("has no {}: it needs dtype, shape and data_offsets",
                                !has_dtype_   ? "dtype"
                                : !has_shape_ ? "shape"
                                              : "data_offsets"));
      }
      header_.tensors.push_back(std::move(tensor_));
    }
    place_ = place_ == Place::top ? Place::outside : Place::top;
    return true;
  }

  bool start_array(std::size_t) override {
    if (place_ != Place::tensor || key_ == "dtype") unexpected("an array");
    place_ = key_ == "shape" ? Place::shape : Place::offsets;
    return true;
  }

  bool end_array() override {
    if (place_ == Place::offsets && offsets_ != 2) {
      fail_tensor(fmt::format("data_offsets has {} numbers: it needs two", offsets_));
    }
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const json::exception& error) override {
    unsound(file_, fmt::format("its header is not JSON: {}", printable(error.what())));
  }

 private:
  enum class Place { outside, top, metadata, tensor, shape, offsets };
  static constexpr std::size_t rank_max = 64;

  [[noreturn]] void fail_tensor(const std::string& what) const {
    unsound(file_, fmt::format("tensor {} {}", printable(tensor_.name), what));
  }

  // A value where the format has none of that kind.
  [[noreturn]] bool unexpected(const std::string& value) const {
    switch (place_) {
      case Place::outside:
        unsound(file_, "its header is not a JSON object");
      case Place::top:
        unsound(file_, fmt::format("{} is {}: it must be an object", printable(key_), value));
      case Place::metadata:
        unsound(file_, fmt::format("its __metadata__ has {} = {}: it must be a string",
                                   printable(key_), value));
      case Place::tensor:
        fail_tensor(fmt::format("has {} = {}: it must be {}", key_, value,
                                key_ == "dtype" ? "a string" : "an array of whole numbers"));
      case Place::shape:
      case Place::offsets:
        break;
    }
    fail_tensor(fmt::format("has {} in {}: it must be a whole number, 0 to 2^64 - 1", value,
                            place_ == Place::shape ? "shape" : "data_offsets"));
  }

  SafetensorsHeader& header_;
  const std::string& file_;
  Place place_ = Place::outside;
  std::string key_;
  std::unordered_set<std::string> names_;
  Tensor tensor_;
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
  int offsets_ = 0;
};

void check_size(const Tensor& tensor, const std::string& file) {
  const auto bits = dtype_bits(tensor.dtype);
  if (!bits) return;
  const auto count = element_count(tensor.shape);
  const auto size = count ? checked_multiply(*count, static_cast<std::uint64_t>(*bits)) : count;
  if (!size) {
    unsound(file, fmt::format("tensor {} has a shape whose size exceeds 2^64 - 1 bits",
                              printable(tensor.name)));
  }
  if (*size % 8 != 0) {
    unsound(file, fmt::format("tensor {} has {} bits by its shape and dtype {}, no whole bytes",
                              printable(tensor.name), *size, printable(tensor.dtype)));
  }
  if (*size / 8 != tensor.size_bytes()) {
    unsound(file, fmt::format("tensor {} takes {} bytes, but its shape and dtype make {}",
                              printable(tensor.name), tensor.size_bytes(), *size / 8));
  }
}

// Sorts the tensors by their place; they must cover the data without gap or overlap.
void check_layout(SafetensorsHeader& header, std::uint64_t data_bytes, const std::string& file) {
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const Tensor& a, const Tensor& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  std::uint64_t position = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != position || tensor.end < tensor.begin) {
      unsound(file, fmt::format("tensor {} lies at bytes {} to {}, but the one before ends at {}",
                                printable(tensor.name), tensor.begin, tensor.end, position));
    }
    if (tensor.end > data_bytes) {
      unsound(file, fmt::format("tensor {} lies at bytes {} to {} of {} bytes of data: the file is "
                                "cut short or the header wrong",
                                printable(tensor.name), tensor.begin, tensor.end, data_bytes));
    }
    check_size(tensor, file);
    position = tensor.end;
  }
  if (position != data_bytes) {
    unsound(file,
            fmt::format("its tensors end at byte {} of {} bytes of data", position, data_bytes));
  }
}

}  // namespace

SafetensorsHeader parse_header(std::string_view text, std::uint64_t data_bytes,
                               const std::string& file) {
  if (text.empty() || text.front() != '{') {
    unsound(file, text.empty() ? "its header is empty"
                               : "its header is not a JSON object: it must begin with {");
  }
  // The parser would take a zero byte for the end of the text.
  if (const auto zero = text.find('\0'); zero != std::string_view::npos) {
    unsound(file, fmt::format("its header is not JSON: byte {} of it is 0", zero));
  }
  SafetensorsHeader header;
  header.header_bytes = text.size();
  HeaderReader reader(header, file);
  json::sax_parse(text.begin(), text.end(), &reader);
  check_layout(header, data_bytes, file);
  return header;
}

#else

SafetensorsHeader parse_header(std::string_view, std::uint64_t, const std::string& file) {
  throw Error(ErrorCode::unsupported,
              fmt::format("cannot read {}: this build has no JSON reader. Install "
                          "nlohmann-json3-dev, configure and build again",
                          file));
}

#endif

}  // namespace slimgemm::checkpoint
