// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_file.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/xxh3.hpp"
#include "unit/checkpoint_test_support.hpp"

#include <sys/file.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

namespace slimgemm::checkpoint::test {
namespace {

class CheckpointFile : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    write_file(path("a.safetensors"), whole_file().text());
  }

  // Replaces text in the packed file's header by other text of the same length, checksum and all.
  void change_header(const std::string& from, const std::string& to, bool is_resealed = true) {
    ASSERT_EQ(from.size(), to.size());
    std::string bytes = read_file(path("p"));
    const std::size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    bytes.replace(at, from.size(), to);
    if (is_resealed) {
      std::uint64_t size = 0;
      std::memcpy(&size, bytes.data(), sizeof(size));
      std::string head = bytes.substr(0, 8 + size);
      const std::string name = "\"slimgemm.header_xxh3\":\"";
      const std::size_t digits = head.find(name);
      if (digits != std::string::npos) {
        head.replace(digits + name.size(), unsealed.size(), unsealed);
        seal(head, header_seal_key);
      }
      bytes.replace(0, head.size(), head);
    }
    write_file(path("p"), bytes);
  }
};

TEST_F(CheckpointFile, ComesBackByteForByte) {
  const PackSummary summary = pack("a.safetensors", "p");
  EXPECT_EQ(summary.tensors_packed, 2U);
  EXPECT_EQ(summary.weights_packed, 77U * 190 + 3 * 32 * 128);
  EXPECT_EQ(summary.kept.size(), 6U);
  EXPECT_EQ(joined_problems("p"), "");
  EXPECT_EQ(joined_problems("p", "a.safetensors"), "");
  unpack("p", "b.safetensors");
  EXPECT_TRUE(read_file(path("b.safetensors")) == whole_file().text());
  EXPECT_FALSE(fs::exists(path("p.partial")));
  EXPECT_FALSE(fs::exists(path("b.safetensors.partial")));
}

TEST_F(CheckpointFile, IsTheSameBytesEveryTime) {
  pack("a.safetensors", "p");
  pack("a.safetensors", "q");
  EXPECT_TRUE(read_file(path("p")) == read_file(path("q")));
}

TEST_F(CheckpointFile, IsASoundSafetensorsFileWithAlignedTensors) {
  pack("a.safetensors", "p");
  const SafetensorsFile file(path("p"));
  EXPECT_EQ(file.header().metadata.at("format"), "pt");
  EXPECT_EQ(file.header().metadata.at("note"), "a \"b\" \n");
  EXPECT_EQ(file.header().data_begin() % 4096, 0U);
  const Tensor* packed = file.header().find("layers.0.odd.weight_packed");
  ASSERT_NE(packed, nullptr);
  EXPECT_EQ(packed->dtype, "U8");
  EXPECT_EQ(packed->shape, std::vector<std::uint64_t>{packed->size_bytes()});
  for (const Tensor& tensor : file.header().tensors) {
    const auto bits = static_cast<std::uint64_t>(dtype_bits(tensor.dtype).value_or(8));
    EXPECT_EQ(tensor.begin % (tensor.name.ends_with("_packed") ? 256 : bits / 8), 0U)
        << tensor.name;
  }
  const PackedFile records(path("p"));
  for (const TensorRecord& record : records.records()) {
    if (record.original.name != "layers.0.experts.up") continue;
    EXPECT_EQ(record.encoding, "split12");
    ASSERT_EQ(record.offsets.size(), 3U);
    for (const std::uint64_t offset : record.offsets) {
      std::string magic(8, '\0');
      file.read(*file.header().find("layers.0.experts.up_packed"), offset,
                std::as_writable_bytes(std::span(magic)));
      EXPECT_EQ(magic, "SLIMPACK");
      EXPECT_EQ(offset % 256, 0U);
    }
  }
}

TEST_F(CheckpointFile, NoticesEveryChangedByte) {
  write_file(path("a.safetensors"),
             FileBuilder().add_bf16("a.weight", {47, 190}).add_bf16("norm.weight", {5}).text());
  pack("a.safetensors", "p");
  const std::string sound = read_file(path("p"));
  // All of the JSON text; of its padding and the data, which are long, one byte of a few.
  const std::size_t text_end = sound.find("}   ");
  for (std::size_t i = 0; i < sound.size(); i += i < text_end ? 1 : 13) {
    std::string changed = sound;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    write_file(path("q"), changed);
    bool noticed = false;
    try {
      noticed = !problems("q").empty();
    } catch (const Error& error) {
      noticed = error.code() == ErrorCode::corrupt_data;
    }
    ASSERT_TRUE(noticed) << "byte " << i << " of " << sound.size();
  }
}

TEST_F(CheckpointFile, NoticesEveryLength) {
  pack("a.safetensors", "p");
  const std::string sound = read_file(path("p"));
  for (const std::size_t size : {sound.size() + 1, sound.size() - 1, sound.size() / 2,
                                 std::size_t{9}, std::size_t{7}, std::size_t{0}}) {
    std::string changed = sound;
    changed.resize(size);
    write_file(path("q"), changed);
    expect_error(ErrorCode::corrupt_data, "not a sound safetensors file", [&] { problems("q"); });
    expect_error(ErrorCode::corrupt_data, "not a sound safetensors file",
                 [&] { unpack("q", "r"); });
    EXPECT_FALSE(fs::exists(path("r")));
  }
}

TEST_F(CheckpointFile, NamesTheTensorThatIsDamaged) {
  pack("a.safetensors", "p");
  const std::string sound = read_file(path("p"));
  const PackedFile records(path("p"));
  for (const TensorRecord& record : records.records()) {
    if (record.begin == record.end) continue;
    std::string changed = sound;
    const std::size_t at =
        records.file().header().data_begin() + record.begin + (record.end - record.begin) / 2;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    write_file(path("q"), changed);
    const auto found = problems("q");
    ASSERT_EQ(found.size(), 1U);
    expect_contains(found[0], "tensor " + record.stored_name() + ":");
    expect_error(ErrorCode::corrupt_data, record.stored_name(), [&] { unpack("q", "r"); });
  }
}

TEST_F(CheckpointFile, NamesWhatWasChangedInTheHeader) {
  pack("a.safetensors", "p");
  const std::string sound = read_file(path("p"));
  const auto expect_problem = [&](const std::string& from, const std::string& to,
                                  const std::string& part) {
    write_file(path("p"), sound);
    change_header(from, to);
    expect_contains(joined_problems("p"), part);
    expect_error(ErrorCode::corrupt_data, path("p"), [&] { unpack("p", "r"); });
  };
  expect_problem("\"layers.0.norm.weight\":{", "\"layers.0.form.weight\":{",
                 "tensor layers.0.norm.weight is missing; was it renamed to layers.0.form.weight?");
  expect_problem("\"slimgemm.tensor.scale\"", "\"slimgemm.tensor.skale\"",
                 "the record of tensor scale is missing");
  expect_problem("\"slimgemm.tensor.scale\"", "\"slimgemm.tensor.skale\"",
                 "the record of tensor skale has no tensor in the original");
  expect_problem("\"format\":\"pt\"", "\"format\":\"tf\"", "the metadata entry format was changed");
  expect_problem("\"format\":\"pt\"", "\"formal\":\"pt\"", "the metadata entry format is missing");
  expect_problem("\"format\":\"pt\"", "\"formal\":\"pt\"", "the metadata entry formal was added");
  expect_problem("\\\"xxh3\\\":\\\"", "\\\"xxh4\\\":\\\"", "has no xxh3");
  expect_problem("split12", "split13", "its encoding is split12: its record says split13");
  expect_problem("\"slimgemm.header_xxh3\"", "\"slimgemm.header_xxh4\"",
                 "its checksum slimgemm.header_xxh3 is missing");
  write_file(path("p"), sound);
  change_header("\"format\":\"pt\"", "\"format\":\"tf\"", false);
  expect_contains(joined_problems("p"), "the header was changed after it was written");
}

TEST_F(CheckpointFile, RefusesOtherVersionsByName) {
  pack("a.safetensors", "p");
  change_header("\"slimgemm.format\":\"1\"", "\"slimgemm.format\":\"7\"");
  expect_error(ErrorCode::corrupt_data, "it is packed in format 7: this build reads format 1 only",
               [&] { problems("p"); });
  expect_error(ErrorCode::corrupt_data, "it is packed in format 7", [&] { unpack("p", "r"); });
  expect_error(ErrorCode::corrupt_data, "it is not a packed file",
               [&] { problems("a.safetensors"); });
}

TEST_F(CheckpointFile, ComparesWithTheOriginal) {
  pack("a.safetensors", "p");
  std::string other = whole_file().text();
  const std::size_t at = other.find("abc");  // the tensor "bytes"
  other[at + 1] = 'B';
  write_file(path("other"), other);
  const auto found = problems("p", "other");
  ASSERT_EQ(found.size(), 1U);
  expect_contains(found[0], "tensor bytes differs from " + path("other") + " at byte 1 of it");
  write_file(path("other"), FileBuilder().add_bf16("x", {3}).text());
  expect_contains(joined_problems("p", "other"), "its original header is not that of");
}

TEST_F(CheckpointFile, RefusesWhatItCannotPack) {
  pack("a.safetensors", "p");
  expect_error(ErrorCode::invalid_argument, "is packed already", [&] { pack("p", "q"); });
  expect_error(ErrorCode::invalid_argument, "exists: name another output",
               [&] { pack("a.safetensors", "p"); });
  expect_error(ErrorCode::invalid_argument, "the folder of",
               [&] { pack("a.safetensors", "none/q"); });
  expect_error(ErrorCode::io_error, "does not exist", [&] { pack("none", "q"); });
  write_file(path("b"), FileBuilder().add_bf16("norm.weight", {64}).text());
  expect_error(ErrorCode::invalid_argument,
               "has no tensor to pack: norm.weight stays because of: 1 dimensions",
               [&] { pack("b", "q"); });
  write_file(
      path("b"),
      FileBuilder().add_bf16("a.weight", {64, 64}).add("a.weight_packed", "U8", {1}, "x").text());
  expect_error(ErrorCode::invalid_argument, "has both a.weight and a.weight_packed",
               [&] { pack("b", "q"); });
  PackCheckpointOptions options;
  options.select.include = {"*nothing*"};
  expect_error(ErrorCode::invalid_argument, "matches *nothing*",
               [&] { pack("a.safetensors", "q", options); });
  write_file(path("b"), "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n");
  expect_error(ErrorCode::corrupt_data, "is a Git LFS pointer", [&] { pack("b", "q"); });
  EXPECT_FALSE(fs::exists(path("q")));
}

TEST_F(CheckpointFile, TwoRunsDoNotShareAWorkingFile) {
  const int other = open(path("p.partial").c_str(), O_WRONLY | O_CREAT, 0666);
  ASSERT_EQ(flock(other, LOCK_EX | LOCK_NB), 0);
  expect_error(ErrorCode::io_error, "another process is writing it",
               [&] { pack("a.safetensors", "p"); });
  close(other);
  expect_error(ErrorCode::io_error, "it exists; an interrupted run left it, or it is yours",
               [&] { pack("a.safetensors", "p"); });
  fs::remove(path("p.partial"));
  pack("a.safetensors", "p");
  EXPECT_EQ(joined_problems("p"), "");
}

TEST_F(CheckpointFile, WeightsOutsideAnyWindowStayAtSixteenBits) {
  std::string wild = FileBuilder::bf16_bytes(64 * 192, 9);
  std::mt19937 random(1);
  for (std::size_t i = 0; i < wild.size(); i += 2) {
    if (random() % 5 >= 2) continue;  // two fifths, of which 16 exponents hold a few
    wild[i] = static_cast<char>(random());
    wild[i + 1] = static_cast<char>(random() & 0xBF);
  }
  write_file(path("b"), FileBuilder().add("a.weight", "BF16", {64, 192}, wild).text());
  const PackSummary summary = pack("b", "p");
  EXPECT_EQ(summary.raw16_matrices, 1U);
  EXPECT_EQ(joined_problems("p", "b"), "");
  unpack("p", "c");
  EXPECT_TRUE(read_file(path("c")) == read_file(path("b")));
}

TEST_F(CheckpointFile, PacksFp16OnlyWhereItIsBf16) {
  const std::string values(2 * 64 * 64, '\x30');  // FP16 0x3030: low three mantissa bits are zero
  std::string other = values;
  other[77 * 2] = '\x31';
  write_file(path("b"), FileBuilder()
                            .add("was.weight", "F16", {64, 64}, values)
                            .add("is.weight", "F16", {64, 64}, other)
                            .add("f.weight", "F32", {16, 64}, std::string(4096, 'f'))
                            .text());
  expect_error(ErrorCode::invalid_argument, "F16: packed only with --fp16",
               [&] { pack("b", "p"); });
  PackCheckpointOptions options;
  options.select.fp16 = true;
  options.select.fp32 = true;
  const PackSummary summary = pack("b", "p", options);
  EXPECT_EQ(summary.tensors_packed, 2U);
  ASSERT_EQ(summary.kept.size(), 1U);
  EXPECT_EQ(summary.kept[0].name, "is.weight");
  expect_contains(summary.kept[0].why, "values that are not BF16");
  EXPECT_EQ(joined_problems("p", "b"), "");
  unpack("p", "c");
  EXPECT_TRUE(read_file(path("c")) == read_file(path("b")));
}

}  // namespace
}  // namespace slimgemm::checkpoint::test
