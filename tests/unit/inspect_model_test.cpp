// SPDX-License-Identifier: Apache-2.0
// Files and directories as models: which files, which tensors, what they are.
#include "inspect/model.hpp"

#include "inspect_test_support.hpp"
#include "unit/text_test_support.hpp"

#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON && SLIMGEMM_HAVE_XXHASH

namespace slimgemm::inspect {
namespace {

std::string message_of(const std::string& path, ErrorCode code) {
  try {
    const Model model(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(LayerOf, FirstNumberOfTheName) {
  EXPECT_EQ(layer_of("model.layers.12.mlp.experts.3.up_proj.weight"), 12);
  EXPECT_EQ(layer_of("h.0.attn.weight"), 0);
  EXPECT_FALSE(layer_of("lm_head.weight"));
  EXPECT_FALSE(layer_of("model.layers12.x"));
  EXPECT_FALSE(layer_of("a.99999999999999999999.b"));
  EXPECT_FALSE(layer_of(""));
}

TEST(Model, OneFile) {
  const TestFolder folder;
  write_safetensors(
      folder.at("m.safetensors"),
      {bf16_tensor("model.embed_tokens.weight", {64, 64}, one),
       bf16_tensor("model.layers.1.mlp.up_proj.weight", {64, 128}, one),
       bf16_tensor("model.layers.1.mlp.experts.0.up_proj.weight", {64, 128}, one),
       bf16_tensor("model.layers.1.mlp.shared_experts.up_proj.weight", {64, 128}, one),
       bf16_tensor("model.norm.weight", {64}, one),
       {"model.layers.1.gate.weight", "F32", {64, 128}, std::string(32768, 0)}});
  const Model model(folder.at("m.safetensors"));
  EXPECT_FALSE(model.is_directory());
  EXPECT_FALSE(model.is_packed());
  EXPECT_FALSE(model.config());
  ASSERT_EQ(model.tensors().size(), 6U);
  EXPECT_EQ(model.original_bytes(), 8192U + 3 * 16384 + 128 + 32768);
  EXPECT_EQ(model.stored_bytes(), model.original_bytes());
  EXPECT_FALSE(model.tensors()[0].is_linear) << "an embedding";
  const ModelTensor* up = model.find("model.layers.1.mlp.up_proj.weight");
  ASSERT_NE(up, nullptr);
  EXPECT_TRUE(up->is_linear && up->selection.packed && !up->is_expert);
  EXPECT_EQ(up->layer, 1);
  EXPECT_EQ(up->selection.n, 64U);
  EXPECT_EQ(up->selection.k, 128U);
  EXPECT_TRUE(model.tensors()[2].is_expert);
  EXPECT_FALSE(model.tensors()[3].is_expert) << "shared experts serve every token";
  EXPECT_FALSE(model.tensors()[4].is_linear);
  const ModelTensor& gate = model.tensors()[5];
  EXPECT_TRUE(gate.is_linear && !gate.selection.packed) << "read by every token, but not packed";
  EXPECT_EQ(model.find("none"), nullptr);
}

TEST(Model, DirectoryWithAnIndex) {
  const TestFolder folder;
  write_safetensors(folder.at("b.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  write_safetensors(folder.at("a.safetensors"), {bf16_tensor("y.weight", {64, 64}, one)});
  write_safetensors(folder.at("other.safetensors"), {bf16_tensor("z.weight", {64, 64}, one)});
  write_text(folder.at("config.json"), R"({"model_type": "llama"})");
  write_text(folder.at("model.safetensors.index.json"),
             R"({"weight_map": {"x.weight": "b.safetensors", "y.weight": "a.safetensors"}})");
  const Model model(folder.path());
  EXPECT_TRUE(model.is_directory());
  ASSERT_EQ(model.file_count(), 2U) << "what the index names, and nothing else";
  EXPECT_EQ(model.tensors()[0].original.name, "y.weight");
  ASSERT_TRUE(model.config());
  EXPECT_EQ(model.config()->model_type, "llama");
}

TEST(Model, DirectoryWithoutAnIndex) {
  const TestFolder folder;
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::io_error), "no safetensors file"));
  write_safetensors(folder.at("b.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  write_safetensors(folder.at("a.safetensors"), {bf16_tensor("y.weight", {64, 64}, one)});
  EXPECT_EQ(Model(folder.path()).file_count(), 2U);
  write_safetensors(folder.at("model.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  EXPECT_EQ(Model(folder.path()).file_count(), 1U) << "model.safetensors is the whole model";
}

TEST(Model, NamesWhatIsWrong) {
  const TestFolder folder;
  EXPECT_TRUE(
      contains(message_of(folder.at("none"), ErrorCode::io_error), "there is no such file"));
  write_safetensors(folder.at("a.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  write_safetensors(folder.at("b.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data),
                       "tensor x.weight is in " + folder.at("a.safetensors") + " and in "));
  const std::string index = folder.at("model.safetensors.index.json");
  write_text(index, R"({"weight_map": {"x.weight": "c.safetensors"}})");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::io_error),
                       "c.safetensors, which is not there"));
  write_text(index, R"({"weight_map": {"y.weight": "a.safetensors"}})");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data),
                       "has no tensor y.weight, which the index says"));
  write_text(index, R"({"weight_map": {"x.weight": "../a.safetensors"}})");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data), "same directory"));
  write_text(index, R"({"weight_map": {}})");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data), "weight_map is empty"));
  write_text(index, R"([])");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data), "weight_map"));
  write_text(folder.at("config.json"), "{");
  EXPECT_TRUE(contains(message_of(folder.path(), ErrorCode::corrupt_data), "config.json is not"));
}

TEST(Model, TruncatedFile) {
  const TestFolder folder;
  write_safetensors(folder.at("a.safetensors"), {bf16_tensor("x.weight", {64, 64}, one)});
  std::filesystem::resize_file(folder.at("a.safetensors"), 4000);
  EXPECT_TRUE(
      contains(message_of(folder.at("a.safetensors"), ErrorCode::corrupt_data), "x.weight"));
}

}  // namespace
}  // namespace slimgemm::inspect

#endif
