// SPDX-License-Identifier: Apache-2.0
// The small parts: which tensors are packed, FP16, checksums in text, files.
#include "checkpoint/directory.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/fp16.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_files.hpp"
#include "checkpoint/output_file.hpp"
#include "checkpoint/selection.hpp"
#include "checkpoint/xxh3.hpp"
#include "unit/checkpoint_test_support.hpp"

#include <array>
#include <cmath>

namespace slimgemm::checkpoint::test {
namespace {

Selection select_one(const std::string& name, const std::vector<std::uint64_t>& shape,
                     const SelectOptions& options = {}, const std::string& dtype = "BF16") {
  const std::uint64_t element = dtype == "F32" ? 4 : 2;
  return select({.name = name,
                 .dtype = dtype,
                 .shape = shape,
                 .begin = 0,
                 .end = FileBuilder::count(shape) * element},
                options);
}

TEST(Selection, TakesLinearLayersByName) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "lm_head.weight",
                           "transformer.h.0.attn.c_attn.weight", "gpt_neox.embed_out.weight",
                           "layers.0.mlp.experts.7.w1.weight", "shared_expert.up_proj.weight"}) {
    EXPECT_TRUE(select_one(name, {256, 512}).packed) << name;
  }
  const Selection stack = select_one("mlp.experts.gate_up_proj", {8, 64, 128});
  EXPECT_TRUE(stack.packed);
  EXPECT_EQ(stack.matrices, 8U);
  EXPECT_EQ(stack.n, 64U);
  EXPECT_EQ(stack.k, 128U);
}

TEST(Selection, LeavesTheRestAndSaysWhy) {
  for (const char* name :
       {"model.embed_tokens.weight", "transformer.wte.weight", "transformer.wpe.weight",
        "bert.embeddings.word_embeddings.weight", "shared.weight", "tok_embeddings.weight"}) {
    EXPECT_EQ(select_one(name, {256, 512}).why, "an embedding by its name") << name;
  }
  EXPECT_EQ(select_one("a.bias", {256, 512}).why, "its name does not end in .weight");
  EXPECT_EQ(select_one("norm.weight", {512}).why, "1 dimensions");
  EXPECT_EQ(select_one("conv.weight", {64, 64, 3, 3}).why, "4 dimensions");
  EXPECT_FALSE(select_one("conv1d.weight", {64, 64, 4}).packed);
  EXPECT_FALSE(select_one("experts.down_proj_bias", {8, 64, 64}).packed);
  EXPECT_EQ(select_one("a.weight", {0, 512}).why, "no elements");
  EXPECT_NE(select_one("gate.weight", {1, 4096}).why.find("too small"), std::string::npos);
  EXPECT_EQ(select_one("a.weight", {256, 512}, {}, "F16").why, "F16: packed only with --fp16");
  EXPECT_EQ(select_one("a.weight", {256, 512}, {}, "I8").why, "dtype I8");
  SelectOptions fp32;
  fp32.fp32 = true;
  EXPECT_TRUE(select_one("gate.weight", {16, 4096}, fp32, "F32").packed);
  EXPECT_NE(select_one("gate.weight", {1, 4096}, fp32, "F32").why.find("it would double"),
            std::string::npos);
  EXPECT_FALSE(select_one("experts.w", {1 << 20, 1, 1}, fp32, "F32").packed);
  SelectOptions tied;
  tied.tied_embeddings = true;
  EXPECT_FALSE(select_one("lm_head.weight", {256, 512}, tied).packed);
}

TEST(Selection, FollowsGlobs) {
  SelectOptions options;
  options.include = {"*embed_tokens.weight", "odd?name"};
  options.exclude = {"*.q_proj.*"};
  EXPECT_TRUE(select_one("model.embed_tokens.weight", {256, 512}, options).packed);
  EXPECT_TRUE(select_one("odd-name", {256, 512}, options).packed);
  EXPECT_EQ(select_one("a.q_proj.weight", {256, 512}, options).why, "--exclude");
  EXPECT_FALSE(select_one("odd-name", {256}, options).packed);
  EXPECT_FALSE(select_one("odd-name", {256, 512}, options, "I16").packed);
}

double fp16_value(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const double mantissa = bits & 1023;
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

TEST(Fp16, ConvertsExactlyOrNotAtAll) {
  int exact = 0;
  for (unsigned i = 0; i < 65536; ++i) {
    const auto original = static_cast<std::uint16_t>(i);
    std::array<std::uint16_t, 1> value{original};
    const bool fits = fp16_to_bf16(value);
    if ((i & 0x7C00U) == 0x7C00U) {
      EXPECT_EQ(fits, (i & 7U) == 0);
    } else {
      // A BF16 value: rounding to BF16 changes nothing.
      const auto number = static_cast<float>(fp16_value(original));
      EXPECT_EQ(fits, bf16_to_float(float_to_bf16(number)) == number) << i;
      if (fits) {
        EXPECT_EQ(bf16_to_float(value[0]), number) << i;
      }
    }
    if (!fits) continue;
    ++exact;
    EXPECT_TRUE(bf16_to_fp16(value)) << i;
    EXPECT_EQ(value[0], original);
  }
  EXPECT_GT(exact, 8000);
}

TEST(Fp16, RefusesWhatFp16HasNot) {
  for (const float number : {1e10F, 1e-10F, 65536.0F, -1e30F, 0x1p-25F, 0x1.02p-24F}) {
    std::array<std::uint16_t, 1> value{float_to_bf16(number)};
    EXPECT_FALSE(bf16_to_fp16(value)) << number;
  }
}

TEST(SpaceAndNames, AreChecked) {
  EXPECT_NO_THROW(check_space(10, 10, "x"));
  try {
    check_space(11, 10, "disk");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "11 bytes are needed, but only 10 are free on the file system of disk");
  }
  EXPECT_TRUE(is_index("model.safetensors.index.json"));
  EXPECT_FALSE(is_index("pytorch_model.bin.index.json"));
}

class CheckpointParts : public CheckpointTest {};

TEST_F(CheckpointParts, SealsFindEveryChange) {
  std::string text = R"({"a": "b", "seal": "0000000000000000", "c": 1})";
  seal(text, "seal");
  EXPECT_EQ(check_seal(text, "seal"), "");
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = static_cast<char>(changed[i] + 1);
    EXPECT_NE(check_seal(changed, "seal"), "") << i;
  }
  EXPECT_EQ(check_seal("{}", "seal"), "its checksum seal is missing");
  EXPECT_EQ(check_seal(R"({"seal": "00")", "seal"), "its checksum seal is missing");
  EXPECT_EQ(check_seal(R"("seal")", "seal"), "its checksum seal is missing");
}

TEST_F(CheckpointParts, StreamedChecksumsAreThoseOfTheWhole) {
  const std::string text = FileBuilder::bf16_bytes(100'000, 1);
  Xxh3 xxh3;
  for (std::size_t i = 0; i < text.size(); i += 777) {
    const std::string piece = text.substr(i, 777);
    xxh3.update(std::as_bytes(std::span(piece)));
  }
  EXPECT_EQ(hex(xxh3.digest()), xxh3_text(text));
  EXPECT_EQ(xxh3_text(""), "2d06800538d394c2");  // the published value of nothing
}

TEST_F(CheckpointParts, WritesLandWhereTheyBelong) {
  std::mt19937 random(1);
  std::string expected(40 << 20, '\0');
  Workspace workspace;
  OutputFile file(path("x"), workspace.pieces);
  // Overlap nothing, leave nothing out: pieces of odd sizes, the large ones past the cache.
  for (std::size_t offset = 0; offset < expected.size();) {
    const std::size_t size = std::min<std::size_t>(
        random() % (random() % 2 == 0 ? 5000 : 20 << 20) + 1, expected.size() - offset);
    std::string piece(size, static_cast<char>(random()));
    for (std::size_t i = 0; i < size; i += 13) piece[i] = static_cast<char>(random());
    file.seek(offset);
    file.write(std::as_bytes(std::span(piece)));
    expected.replace(offset, size, piece);
    offset += size;
  }
  file.finish();
  EXPECT_TRUE(read_file(path("x")) == expected);
}

TEST_F(CheckpointParts, RenamingReplacesNothing) {
  write_file(path("a"), "a");
  write_file(path("b"), "b");
  expect_error(ErrorCode::io_error, "cannot rename",
               [&] { rename_into_place(path("a"), path("b")); });
  EXPECT_EQ(read_file(path("b")), "b");
}

TEST_F(CheckpointParts, RenamesWithoutTheFlag) {
  write_file(path("a"), "a");
  write_file(path("b"), "b");
  expect_error(ErrorCode::io_error, "File exists",
               [&] { rename_without_flag(path("a"), path("b")); });
  EXPECT_EQ(read_file(path("a")), "a");
  EXPECT_EQ(read_file(path("b")), "b");
  rename_without_flag(path("a"), path("c"));
  EXPECT_FALSE(fs::exists(path("a")));
  EXPECT_EQ(read_file(path("c")), "a");
  fs::create_directories(path("d"));
  write_file(path("d/x"), "x");
  fs::create_directories(path("empty"));
  expect_error(ErrorCode::io_error, "File exists",
               [&] { rename_without_flag(path("d"), path("empty")); });
  rename_without_flag(path("d"), path("e"));
  EXPECT_FALSE(fs::exists(path("d")));
  EXPECT_EQ(read_file(path("e/x")), "x");
}

TEST_F(CheckpointParts, LinksThatFanOutAreRefused) {
  fs::create_directories(path("tree/0"));
  constexpr int levels = 30;  // 2^30 ways to the last of them
  for (int level = 0; level < levels; ++level) {
    const std::string from = path("tree/" + std::to_string(level));
    const std::string to = "../" + std::to_string(level + 1);
    fs::create_directories(path("tree/" + std::to_string(level + 1)));
    fs::create_directory_symlink(to, from + "/a");
    fs::create_directory_symlink(to, from + "/b");
  }
  expect_error(ErrorCode::io_error, "in more than 8 ways", [&] { list_directory(path("tree/0")); });
}

TEST_F(CheckpointParts, NamesInAManifestAreWrittenOneWay) {
  for (const char* name : {"a//b", "a/", "./a", "a/../b", "/a", ""}) {
    Manifest manifest;
    manifest.files.push_back({.name = name, .kind = FileKind::copied, .bytes = 1, .xxh3 = "0"});
    expect_error(ErrorCode::corrupt_data, "must lie inside the directory",
                 [&] { parse_manifest(manifest_text(manifest), "x"); });
  }
}

TEST_F(CheckpointParts, ConfigsAndIndicesAreRead) {
  expect_contains(*changed_config(R"({"quantization_config": null})", "x"), "slimgemm");
  EXPECT_TRUE(has_tied_embeddings(R"({"tie_word_embeddings": true})"));
  EXPECT_TRUE(has_tied_embeddings(R"({"text_config": {"tie_word_embeddings": true}})"));
  EXPECT_FALSE(has_tied_embeddings(R"({"tie_word_embeddings": 1})"));
  EXPECT_FALSE(has_tied_embeddings("x"));
  EXPECT_FALSE(changed_config("[1]", "x"));
  expect_contains(*changed_config(R"({"a": 1e-06})", "x"), "\"quant_method\": \"slimgemm\"");
  expect_contains(*changed_config(R"({"a": 1e-06})", "x"), "\"a\": 1e-06");
  expect_error(ErrorCode::invalid_argument, "quantized already",
               [] { changed_config(R"({"quantization_config": {}})", "x"); });
  expect_error(ErrorCode::corrupt_data, "it has no weight_map",
               [] { for_each_weight("{}", "x", nullptr); });
  expect_error(ErrorCode::corrupt_data, "weight_map has no file name for a",
               [] { for_each_weight(R"({"weight_map": {"a": 1}})", "x", nullptr); });
}

}  // namespace
}  // namespace slimgemm::checkpoint::test
