// SPDX-License-Identifier: Apache-2.0
#include "inspect/inspection.hpp"

#include "checkpoint/file_io.hpp"
#include "checkpoint/packed_tensor.hpp"
#include "codec/packed_access.hpp"
#include "format/layout.hpp"
#include "support/aligned_buffer.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

namespace slimgemm::inspect {
namespace {

using checkpoint::printable;

class Reader {
 public:
  Reader(const Model& model, const InspectOptions& options, std::uint64_t total_bytes)
      : model_(model), options_(options), total_bytes_(total_bytes) {}

  ExponentStatistics read(const ModelTensor& tensor) {
    follow(tensor);
    ExponentStatistics sum;
    for (std::size_t i = 0; i < tensor.selection.matrices; ++i) {
      sum.add(tensor.packed ? read_packed(tensor, i) : read_plain(tensor, i));
      tell(tensor);
    }
    return sum;
  }

  /// Of an FP16 tensor that is not packed.
  Fp16Statistics read_fp16(const ModelTensor& tensor) {
    follow(tensor);
    const checkpoint::Selection& s = tensor.selection;
    Fp16Counter counter;
    for (std::size_t i = 0; i < s.matrices; ++i) {
      read_weights(tensor, i);
      counter.add(weights_, static_cast<std::int64_t>(s.n), static_cast<std::int64_t>(s.k));
      tell(tensor);
    }
    return counter.statistics(s.packed);
  }

 private:
  // Lets the disk read ahead in the file that this tensor lies in.
  void follow(const ModelTensor& tensor) {
    const checkpoint::SafetensorsFile& file = model_.file(tensor.file);
    if (ahead_ == nullptr || ahead_file_ != tensor.file) {
      ahead_.reset();
      ahead_ = std::make_unique<checkpoint::ReadAhead>(file.descriptor(), file.file_bytes());
      ahead_file_ = tensor.file;
    }
    position_ = file.header().data_begin() + tensor.stored.begin;
  }

  void advance(std::uint64_t bytes) {
    ahead_->advance(position_);
    position_ += bytes;
    done_bytes_ += bytes;
  }

  void tell(const ModelTensor& tensor) const {
    if (!options_.progress || total_bytes_ == 0) return;
    options_.progress(tensor.original.name,
                      static_cast<double>(done_bytes_) / static_cast<double>(total_bytes_));
  }

  void read_weights(const ModelTensor& tensor, std::size_t matrix) {
    const checkpoint::Selection& s = tensor.selection;
    const std::uint64_t bytes = s.n * s.k * sizeof(std::uint16_t);
    advance(bytes);
    weights_.resize(s.n * s.k);
    model_.file(tensor.file)
        .read(tensor.stored, matrix * bytes, std::as_writable_bytes(std::span(weights_)));
  }

  ExponentStatistics read_plain(const ModelTensor& tensor, std::size_t matrix) {
    const checkpoint::Selection& s = tensor.selection;
    read_weights(tensor, matrix);
    ExponentStatistics statistics =
        measure(weights_, static_cast<std::int64_t>(s.n), static_cast<std::int64_t>(s.k));
    statistics.packed_bytes = checkpoint::align_matrix(statistics.packed_bytes);  // as pack writes
    return statistics;
  }

  ExponentStatistics read_packed(const ModelTensor& tensor, std::size_t matrix) {
    const checkpoint::SafetensorsFile& file = model_.file(tensor.file);
    const std::uint64_t begin = tensor.offsets[matrix];
    const std::uint64_t slot_bytes = tensor.matrix_end(matrix) - begin;
    advance(slot_bytes);
    try {
      const PackedMatrix packed = load(file, tensor.stored, begin, slot_bytes);
      const checkpoint::Selection& s = tensor.selection;
      if (packed.dtype() != DType::bf16 || static_cast<std::uint64_t>(packed.n()) != s.n ||
          static_cast<std::uint64_t>(packed.k()) != s.k) {
        throw Error(ErrorCode::corrupt_data,
                    fmt::format("it holds {} x {} weights of {}, not {} x {} of bf16", packed.n(),
                                packed.k(), name(packed.dtype()), s.n, s.k));
      }
      ExponentStatistics statistics = measure(packed, weights_);
      statistics.packed_bytes = slot_bytes;
      return statistics;
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}, tensor {}, matrix {}: {}", file.path(),
                                            printable(tensor.original.name), matrix, error.what()));
    }
  }

  // The matrix is followed by zeros up to where the next one begins.
  static PackedMatrix load(const checkpoint::SafetensorsFile& file,
                           const checkpoint::Tensor& stored, std::uint64_t begin,
                           std::uint64_t slot_bytes) {
    format::Header header{};
    if (slot_bytes < sizeof(header)) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{} bytes are fewer than a header's {}", slot_bytes, sizeof(header)));
    }
    file.read(stored, begin, std::as_writable_bytes(std::span(&header, 1)));
    AlignedBuffer bytes(std::min<std::uint64_t>(header.total_bytes, slot_bytes));
    file.read(stored, begin, std::span(bytes.data(), bytes.size()));
    return PackedAccess::check_and_adopt(std::move(bytes));
  }

  const Model& model_;
  const InspectOptions& options_;
  const std::uint64_t total_bytes_;
  std::vector<std::uint16_t> weights_;
  std::unique_ptr<checkpoint::ReadAhead> ahead_;
  std::size_t ahead_file_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t done_bytes_ = 0;
};

// A BF16 tensor that pack keeps, as one matrix: for --tensor.
checkpoint::Selection as_matrix(const checkpoint::Tensor& tensor) {
  const auto& shape = tensor.shape;
  checkpoint::Selection selection;
  selection.matrices = 1;
  selection.k = shape.empty() ? 1 : shape.back();
  selection.n =
      tensor.size_bytes() / sizeof(std::uint16_t) / std::max<std::uint64_t>(1, selection.k);
  return selection;
}

// The tensor with what pack --fp16 would do with it, if it is FP16.
ModelTensor with_fp16(const Model& model, ModelTensor tensor) {
  if (tensor.packed || tensor.original.dtype != "F16") return tensor;
  checkpoint::SelectOptions options;
  options.fp16 = true;
  options.tied_embeddings = model.config() && model.config()->tie_word_embeddings;
  tensor.selection = checkpoint::select(tensor.original, options);
  return tensor;
}

ModelTensor choose_tensor(const Model& model, const std::string& name) {
  const ModelTensor* found = model.find(name);
  if (found == nullptr) {
    std::vector<std::string> similar;
    for (const ModelTensor& tensor : model.tensors()) {
      if (similar.size() < 5 && tensor.original.name.find(name) != std::string::npos) {
        similar.push_back(printable(tensor.original.name));
      }
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--tensor {}: {} has no tensor of that name{}{}", name, model.path(),
                            similar.empty() ? "; without --tensor, all are listed"
                                            : "; names that contain it: ",
                            fmt::join(similar, ", ")));
  }
  ModelTensor tensor = with_fp16(model, *found);
  const std::string& dtype = tensor.original.dtype;
  if (dtype != "BF16" && dtype != "F16") {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--tensor {}: its dtype is {}; only BF16 and F16 weights can be "
                            "inspected",
                            name, printable(dtype)));
  }
  if (tensor.packed) return tensor;
  if (tensor.original.size_bytes() == 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("--tensor {}: it has no elements", name));
  }
  if (!tensor.selection.packed) {
    const checkpoint::Selection whole = as_matrix(tensor.original);
    tensor.selection.matrices = whole.matrices;
    tensor.selection.n = whole.n;
    tensor.selection.k = whole.k;
  }
  return tensor;
}

bool is_plain_fp16(const ModelTensor& tensor) {
  return !tensor.packed && tensor.original.dtype == "F16";
}

bool is_measurable(const ModelTensor& tensor) {
  return tensor.selection.packed && tensor.original.dtype != "F32";
}

std::uint64_t bytes_to_read(const Model& model) {
  std::uint64_t bytes = 0;
  for (const ModelTensor& tensor : model.tensors()) {
    const bool read = is_measurable(tensor) ||
                      (is_plain_fp16(tensor) && with_fp16(model, tensor).selection.packed);
    if (read) bytes += tensor.stored.size_bytes();
  }
  return bytes;
}

void inspect_all(const Model& model, const InspectOptions& options, Inspection& inspection) {
  Reader reader(model, options, bytes_to_read(model));
  for (const ModelTensor& tensor : model.tensors()) {
    if (is_measurable(tensor)) {
      inspection.measured.push_back({&tensor, reader.read(tensor)});
      continue;
    }
    inspection.others.push_back(
        {&tensor, tensor.selection.packed ? "FP32, packed as it is" : tensor.selection.why});
    if (!is_plain_fp16(tensor)) continue;
    const ModelTensor fp16 = with_fp16(model, tensor);
    if (fp16.selection.packed) inspection.fp16.push_back({&tensor, reader.read_fp16(fp16)});
  }
}

void summarise(Inspection& inspection) {
  for (const MeasuredTensor& measured : inspection.measured) {
    const ExponentStatistics& exponents = measured.exponents;
    const double entropy_weights = exponents.entropy() * static_cast<double>(exponents.weights);
    inspection.total.add(exponents);
    inspection.entropy_weights += entropy_weights;
    inspection.bytes_before += measured.tensor->original.size_bytes();
    inspection.bytes_after += measured.tensor->selection.packed
                                  ? exponents.packed_bytes
                                  : measured.tensor->stored.size_bytes();
    if (!measured.tensor->layer) continue;
    LayerSum& layer = inspection.layers[*measured.tensor->layer];
    layer.weights += exponents.weights;
    layer.packed_bytes += exponents.packed_bytes;
    layer.entropy_weights += entropy_weights;
  }
  for (const OtherTensor& other : inspection.others) {
    inspection.bytes_before += other.tensor->original.size_bytes();
    inspection.bytes_after += other.tensor->stored.size_bytes();
  }
}

}  // namespace

double LayerSum::stored_bits() const {
  return weights == 0 ? 0 : 8 * static_cast<double>(packed_bytes) / static_cast<double>(weights);
}
double LayerSum::ideal_bits() const {
  return weights == 0 ? 0 : other_bits + entropy_weights / static_cast<double>(weights);
}

double Inspection::ideal_bits() const {
  return total.weights == 0 ? 0 : other_bits + entropy_weights / static_cast<double>(total.weights);
}

Inspection inspect(const Model& model, const InspectOptions& options) {
  Inspection inspection;
  const ModelTensor* only = nullptr;
  if (!options.tensor.empty()) {
    const ModelTensor chosen = choose_tensor(model, options.tensor);
    only = model.find(options.tensor);
    Reader reader(model, options, chosen.stored.size_bytes());
    if (is_plain_fp16(chosen)) {
      inspection.fp16.push_back({only, reader.read_fp16(chosen)});
      inspection.others.push_back({only, only->selection.why});
    } else {
      inspection.measured.push_back({only, reader.read(chosen)});
    }
  } else {
    inspect_all(model, options, inspection);
  }
  summarise(inspection);
  inspection.gpu = options.gpu;
  inspection.token = token_cost(model, inspection.measured, options.gpu, only);
  return inspection;
}

}  // namespace slimgemm::inspect
