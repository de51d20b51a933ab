// SPDX-License-Identifier: Apache-2.0
// Reading, packing and writing at the same time: the parts, and what becomes of errors in them.
#include "checkpoint/bulk_reader.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/packed_header.hpp"
#include "checkpoint/part_reader.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/xxh3.hpp"
#include "unit/checkpoint_test_support.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace slimgemm::checkpoint::test {
namespace {

std::string as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string random_text(std::size_t size) {
  std::mt19937_64 random(7);
  std::string text(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t value = random();
    std::memcpy(text.data() + i, &value, sizeof(value));
  }
  return text;
}

TEST(Prefetch, GivesAllItemsInOrderThenTheError) {
  Prefetch<int> items([](const Prefetch<int>::Push& push) {
    for (int i = 0; i < 100; ++i) push(i);
    throw std::runtime_error("after them");
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(items.next(), i);
  EXPECT_THROW(items.next(), std::runtime_error);
}

TEST(Prefetch, EndsWhenNobodyWantsMore) {
  BufferPool pool(10 << 20);
  bool told = false;
  {
    Prefetch<BufferPool::Lease> items([&](const Prefetch<BufferPool::Lease>::Push& push) {
      while (push(pool.take(1 << 20))) {
      }
      told = true;
    });
    const auto first = items.next();
    EXPECT_TRUE(first.has_value());
  }
  EXPECT_TRUE(told);
}

TEST(BufferPool, UsesMemoryAgainWithinItsLimit) {
  constexpr std::uint64_t small = 5 << 20;
  constexpr std::uint64_t large = 9 << 20;
  BufferPool pool(small + large);
  const std::byte* large_data = nullptr;
  {
    const BufferPool::Lease a = pool.take(small);
    const BufferPool::Lease b = pool.take(large);
    large_data = b->data();
  }
  {
    const BufferPool::Lease a = pool.take(small);
    EXPECT_EQ(a->size(), small);
    const BufferPool::Lease b = pool.take(large);
    EXPECT_EQ(b->data(), large_data);
  }
  const BufferPool::Lease alone = pool.take(3 * large);
  EXPECT_EQ(alone->size(), 3 * large) << "one is always allowed";
  std::jthread other([&] { pool.take(1)->data()[0] = std::byte{1}; });  // small: does not wait
}

class CheckpointPipeline : public CheckpointTest {};

TEST_F(CheckpointPipeline, ReadsWhatLiesInTheFile) {
  const std::string text = random_text((11 << 20) + 777);
  write_file(path("x"), text);
  const int descriptor = open(path("x").c_str(), O_RDONLY | O_CLOEXEC);
  BulkReader reader(descriptor, path("x"));
  AlignedBuffer buffer(text.size() + BulkReader::slack_bytes);
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    if (round % 3 == 0) {  // past the cache, where the file system can
      fdatasync(descriptor);
      posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
    }
    const std::uint64_t offset =
        random() % text.size() / (round % 2 == 0 ? 256 : 1) * (round % 2 == 0 ? 256 : 1);
    const std::uint64_t size =
        round < 4 ? text.size() - offset : random() % (text.size() - offset + 1);
    std::string pieces;
    const auto bytes =
        reader.read(buffer, offset, size, 256, [&](auto piece) { pieces += as_text(piece); });
    EXPECT_TRUE(as_text(bytes) == text.substr(offset, size)) << offset << " " << size;
    EXPECT_TRUE(pieces == as_text(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % 256, 0U);
  }
  expect_error(ErrorCode::io_error, "the file ends before",
               [&] { reader.read(buffer, 100, text.size(), 1, [](auto) {}); });
  close(descriptor);
}

TEST_F(CheckpointPipeline, RunsComeInPartsWithTheirChecksum) {
  const std::string text = random_text(1 << 20);
  write_file(path("x"), text);
  const int descriptor = open(path("x").c_str(), O_RDONLY | O_CLOEXEC);
  BulkReader reader(descriptor, path("x"));
  BufferPool buffers(1 << 20);
  const std::vector<ByteRun> runs = {{5, 700'000, 65'536}, {0, 0, 10}, {9, 10, 100}};
  PartReader parts([&](const PartReader::Push& push) { read_runs(reader, runs, buffers, push); });
  std::vector<std::string> found(runs.size());
  while (const auto part = parts.next()) {
    EXPECT_EQ(part->offset, found[part->run].size());
    found[part->run] += as_text(part->bytes);
    const ByteRun& run = runs[part->run];
    EXPECT_EQ(part->last, found[part->run].size() == run.size);
    if (!part->last) continue;
    EXPECT_EQ(hex(part->xxh3), xxh3_text(text.substr(run.offset, run.size)));
  }
  for (std::size_t i = 0; i < runs.size(); ++i) {
    EXPECT_TRUE(found[i] == text.substr(runs[i].offset, runs[i].size)) << i;
  }
  close(descriptor);
}

TEST_F(CheckpointPipeline, OutputIsReplacedAndTakenBack) {
  const std::string text = random_text(30 << 20);
  const auto bytes = std::as_bytes(std::span(text));
  Workspace workspace;
  OutputFile file(path("x"), workspace.pieces);
  file.seek(5000);
  file.write(bytes);
  file.replace(5000, bytes.subspan(100, 50));              // is written already
  file.replace(5000 + text.size() - 10, bytes.first(10));  // is not yet
  file.rewind(5000 + (20 << 20));
  file.write(bytes.first(7));
  file.replace(5000 + (20 << 20), bytes.subspan(50, 3));
  file.finish();
  std::string expected = std::string(5000, '\0') + text;
  expected.replace(5000, 50, text.substr(100, 50));
  expected.replace(5000 + (20 << 20), 7, text.substr(50, 3) + text.substr(3, 4));
  expected.resize(5000 + (20 << 20) + 7);
  EXPECT_TRUE(read_file(path("x")) == expected);
}

TEST_F(CheckpointPipeline, AnOutputThatFailsSaysWhere) {
  Workspace workspace;
  const std::string text = random_text(20 << 20);
  OutputFile file(path("x"), workspace.pieces);
  // No file can be as long as that.
  file.seek((std::uint64_t{1} << 62) + 3);
  expect_error(ErrorCode::io_error, "cannot write", [&] {
    file.write(std::as_bytes(std::span(text)));
    file.finish();
  });
}

TEST_F(CheckpointPipeline, LargeAndWideMatricesComeBack) {
  // Several pieces of output; one row tile that is larger than a piece, packed and unpacked;
  // weights at odd places, where no array of them may lie.
  std::string fp16(std::size_t{2} * 16 * 400'000, '\0');
  for (std::size_t i = 1; i < fp16.size(); i += 2) fp16[i] = static_cast<char>(0x30 + i % 5);
  FileBuilder builder;
  builder.add("byte", "U8", {1}, "x")
      .add("wide.weight", "F16", {16, 400'000}, fp16)
      .add_bf16("large.weight", {2048, 2100}, 2)
      .add("wild.weight", "BF16", {1024, 4200}, random_text(std::size_t{2} * 1024 * 4200))
      .add("f32.weight", "F32", {512, 3000}, random_text(std::size_t{4} * 512 * 3000));
  write_file(path("x"), builder.text());
  PackCheckpointOptions options;
  options.select.fp16 = options.select.fp32 = true;
  const PackSummary summary = pack("x", "p", options);
  EXPECT_EQ(summary.tensors_packed, 4U);
  EXPECT_EQ(summary.raw16_matrices, 1U);
  EXPECT_EQ(joined_problems("p", "x"), "");
  unpack("p", "back");
  EXPECT_TRUE(read_file(path("back")) == read_file(path("x")));
}

TEST_F(CheckpointPipeline, AStackThatTurnsOutNotToPackIsKept) {
  std::string values(std::size_t{2} * 3 * 512 * 3072, '\0');
  for (std::size_t i = 1; i < values.size(); i += 2) values[i] = static_cast<char>(0x30 + i % 5);
  values[values.size() / 2] = '\1';  // in the second matrix: no BF16 number
  std::string first = values;
  first[2] = '\1';
  write_file(path("x"), FileBuilder()
                            .add("a.experts", "F16", {3, 512, 3072}, values)
                            .add("b.experts", "F16", {3, 512, 3072}, first)
                            .add_bf16("c.weight", {512, 512}, 3)
                            .text());
  PackCheckpointOptions options;
  options.select.fp16 = true;
  const PackSummary summary = pack("x", "p", options);
  EXPECT_EQ(summary.tensors_packed, 1U);
  EXPECT_EQ(summary.exceptions, pack("x", "q").exceptions) << "those of the stack do not count";
  EXPECT_EQ(joined_problems("p", "x"), "");
  unpack("p", "back");
  EXPECT_TRUE(read_file(path("back")) == read_file(path("x")));
}

TEST_F(CheckpointPipeline, ASourceThatShrinksMeanwhileIsAnError) {
  FileBuilder builder;  // more than is read ahead
  std::string bytes(std::size_t{2} * 2048 * 8192, '\x3C');
  for (int i = 0; i < 8; ++i) {
    builder.add("layers." + std::to_string(i) + ".weight", "BF16", {2048, 8192}, bytes);
  }
  write_file(path("x"), builder.text());
  pack("x", "sound");
  const auto shrinking = [&](const std::string& file) {
    return Meter([this, file](const std::string&, std::uint64_t done, std::uint64_t) {
      if (done > 0) fs::resize_file(path(file), 1'500'000);
    });
  };
  Meter packing = shrinking("x");
  expect_error(ErrorCode::io_error, "the file ends before",
               [&] { pack_checkpoint(path("x"), path("p"), {}, packing); });
  EXPECT_FALSE(fs::exists(path("p")));
  EXPECT_FALSE(fs::exists(path("p.partial")));
  Meter unpacking = shrinking("sound");
  expect_error(ErrorCode::io_error, "the file ends before",
               [&] { unpack_checkpoint(path("sound"), path("back"), unpacking); });
  EXPECT_FALSE(fs::exists(path("back")));
  EXPECT_FALSE(fs::exists(path("back.partial")));
}

TEST_F(CheckpointPipeline, ManySmallTensorsTakeSmallHeaders) {
  constexpr int count = 4'000;
  FileBuilder builder;
  const std::string bytes = FileBuilder::bf16_bytes(32 * 64, 1);
  for (int i = 0; i < count; ++i) {
    const std::string name = "model.layers.0.mlp.experts." + std::to_string(i) + ".up.weight";
    if (i % 2 == 0) {
      builder.add(name, "BF16", {32, 64}, bytes);
    } else {
      builder.add(name, "BF16", {1}, "ab");
    }
  }
  write_file(path("x"), builder.text());
  EXPECT_EQ(pack("x", "p").tensors_packed, count / 2);
  const SafetensorsFile source(path("x"));
  const SafetensorsFile packed(path("p"));
  EXPECT_LT(packed.header().header_bytes, 5 * source.header().header_bytes);
  EXPECT_EQ(joined_problems("p", "x"), "");
  unpack("p", "back");
  EXPECT_TRUE(read_file(path("back")) == read_file(path("x")));
}

TEST_F(CheckpointPipeline, SoManyMatricesAreRefusedBeforeTheirOffsetsAreMade) {
  write_file(path("x"), FileBuilder().add_bf16("experts.w", {64, 64}, 1).text());
  const SafetensorsFile source(path("x"));
  std::vector<TensorRecord> planned(1);
  planned[0].original = source.header().tensors[0];
  planned[0].packed = true;
  planned[0].matrices = std::uint64_t{1} << 40;
  expect_error(ErrorCode::invalid_argument, "would have 1099511627776 offsets",
               [&] { reserve_header(source, planned); });
}

TEST_F(CheckpointPipeline, AHeaderThatWouldBeTooLargeIsRefusedFirst) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "takes a minute with AddressSanitizer";
#endif
  FileBuilder builder;
  const std::string bytes = FileBuilder::bf16_bytes(64 * 64, 1);
  for (int i = 0; i < 300; ++i) {
    builder.add(std::string(100'000, 'a') + std::to_string(i) + ".weight", "BF16", {64, 64}, bytes);
  }
  write_file(path("x"), builder.text());
  expect_error(ErrorCode::invalid_argument, "split the file into shards of fewer tensors",
               [&] { pack("x", "p"); });
  EXPECT_FALSE(fs::exists(path("p.partial")));
}

}  // namespace
}  // namespace slimgemm::checkpoint::test
