// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_file.hpp"

#include "checkpoint/file_io.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <bit>

namespace slimgemm::checkpoint {

static_assert(std::endian::native == std::endian::little, "tensors are read as they lie");

namespace {

// "version ", the first bytes of a Git LFS pointer, as a header's size.
constexpr std::uint64_t git_lfs_start = 0x206E6F69'73726576;

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), descriptor_(open_for_reading(path)) {
  try {
    file_bytes_ = file_size(descriptor_, path);
    check_header_bytes(0, file_bytes_, path);
    std::uint64_t header_bytes = 0;
    read_at(descriptor_, 0, std::as_writable_bytes(std::span(&header_bytes, 1)), path);
    if (header_bytes == git_lfs_start) {
      throw Error(ErrorCode::corrupt_data,
                  fmt::format("{} is a Git LFS pointer, not the tensors: run git lfs pull", path));
    }
    check_header_bytes(header_bytes, file_bytes_, path);
    header_text_.resize(header_bytes);
    read_at(descriptor_, length_bytes, std::as_writable_bytes(std::span(header_text_)), path);
    header_ = parse_header(header_text_, file_bytes_ - length_bytes - header_bytes, path);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close(descriptor_); }

void SafetensorsFile::read(const Tensor& tensor, std::uint64_t offset,
                           std::span<std::byte> to) const {
  if (offset > tensor.size_bytes() || to.size() > tensor.size_bytes() - offset) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: bytes {} to {} of tensor {}, which has {}", path_, offset,
                            offset + to.size(), printable(tensor.name), tensor.size_bytes()));
  }
  read_at(descriptor_, header_.data_begin() + tensor.begin + offset, to, path_);
}

}  // namespace slimgemm::checkpoint
