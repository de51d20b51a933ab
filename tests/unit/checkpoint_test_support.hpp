// SPDX-License-Identifier: Apache-2.0
// Checkpoints to pack and to damage.
#pragma once

#include "checkpoint/checkpoint.hpp"
#include "support/bf16.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace slimgemm::checkpoint::test {

namespace fs = std::filesystem;

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

/// A safetensors file in the making.
class FileBuilder {
 public:
  FileBuilder& add(const std::string& name, const std::string& dtype,
                   const std::vector<std::uint64_t>& shape, const std::string& bytes) {
    std::string sizes;
    for (const std::uint64_t size : shape)
      sizes += (sizes.empty() ? "" : ", ") + std::to_string(size);
    entries_ += ", \"" + name + "\": {\"dtype\": \"" + dtype + "\", \"shape\": [" + sizes +
                "], \"data_offsets\": [" + std::to_string(data_.size()) + ", " +
                std::to_string(data_.size() + bytes.size()) + "]}";
    data_ += bytes;
    return *this;
  }
  /// BF16 weights, normal with a standard deviation of 0.02.
  FileBuilder& add_bf16(const std::string& name, const std::vector<std::uint64_t>& shape,
                        unsigned seed = 1) {
    return add(name, "BF16", shape, bf16_bytes(count(shape), seed));
  }
  /// Header with odd spaces and padding, then the data.
  [[nodiscard]] std::string text() const {
    std::string header =
        R"({"__metadata__": {"format": "pt", "note": "a \"b\" \n"})" + entries_ + "} ";
    header.resize((header.size() + 7) / 8 * 8 + 16, ' ');
    std::string length(8, '\0');
    const std::uint64_t size = header.size();
    std::memcpy(length.data(), &size, sizeof(size));
    return length + header + data_;
  }

  static std::uint64_t count(const std::vector<std::uint64_t>& shape) {
    return std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
  }
  static std::string bf16_bytes(std::uint64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, 0.02F);
    std::string bytes(2 * count, '\0');
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint16_t bits = float_to_bf16(normal(random));
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
    return bytes;
  }

 private:
  std::string entries_;
  std::string data_;
};

/// A small file with everything in it: odd sizes, NaN, stacks, other dtypes, tensors of no
/// elements.
inline FileBuilder whole_file() {
  FileBuilder file;
  std::string odd = FileBuilder::bf16_bytes(77 * 190, 5);
  odd[2 * 70 + 1] = '\x7F';  // exponent 255
  odd[2 * 70] = '\xC1';
  odd[2 * 900] = odd[2 * 900 + 1] = '\0';
  file.add("bytes", "U8", {3}, "abc")
      .add_bf16("model.embed_tokens.weight", {40, 64}, 2)
      .add("layers.0.odd.weight", "BF16", {77, 190}, odd)
      .add_bf16("layers.0.norm.weight", {64}, 3)
      .add("empty.weight", "BF16", {0, 64}, "")
      .add_bf16("layers.0.experts.up", {3, 32, 128}, 4)
      .add("scale", "F32", {2}, "12345678")
      .add("unknown", "NEW_4", {5}, "uvwxyz");
  return file;
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "slimgemm_checkpoint_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }

  PackSummary pack(const std::string& in, const std::string& out,
                   const PackCheckpointOptions& options = {}) {
    return pack_checkpoint(path(in), path(out), options, meter_);
  }
  UnpackSummary unpack(const std::string& in, const std::string& out) {
    return unpack_checkpoint(path(in), path(out), meter_);
  }
  std::vector<std::string> problems(const std::string& packed, const std::string& against = "") {
    return verify_checkpoint(path(packed), against.empty() ? "" : path(against), meter_).problems;
  }
  std::string joined_problems(const std::string& packed, const std::string& against = "") {
    std::string text;
    for (const std::string& problem : problems(packed, against)) text += problem + "\n";
    return text;
  }

  template <class Body>
  static void expect_error(ErrorCode code, const std::string& part, const Body& body) {
    try {
      body();
      ADD_FAILURE() << "accepted, but: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  fs::path folder_;
  Meter meter_{nullptr};
};

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "not found: " << part << "\nin: " << text;
}

}  // namespace slimgemm::checkpoint::test
