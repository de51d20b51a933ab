// SPDX-License-Identifier: Apache-2.0
// Inspections of models whose figures are computed by hand.
#include "inspect/inspection_report.hpp"

#include "inspect_test_support.hpp"
#include "unit/text_test_support.hpp"

#include <slimgemm/error.hpp>

#if SLIMGEMM_HAVE_JSON && SLIMGEMM_HAVE_XXHASH

#include <nlohmann/json.hpp>

namespace slimgemm::inspect {
namespace {

constexpr std::uint16_t sixteenth = 0x3D80;  // exponent 123

// 64 x 64 weights: 4 row tiles of one tile: 256 + 4 x 1536 + 4 x 128 + 5 x 4 bytes, padded to a
// multiple of 256.
constexpr std::uint64_t packed_64 = 256 + 4 * 1536 + 4 * 128 + 256;

InspectOptions h200() {
  InspectOptions options;
  options.gpu = lab::named_gpu("h200");
  return options;
}

class InspectionTest : public testing::Test {
 protected:
  void SetUp() override {
    TestTensor mixed = bf16_tensor("model.layers.0.q_proj.weight", {64, 64}, one);
    for (std::size_t i = 0; i < 4096; i += 2) mixed.bytes.replace(2 * i, 2, bytes_of({sixteenth}));
    mixed.bytes.replace(0, 2, bytes_of({0}));       // a zero,
    mixed.bytes.replace(2, 2, bytes_of({0x7F80}));  // and an infinity
    write_safetensors(folder_.at("m.safetensors"),
                      {mixed, bf16_tensor("model.layers.1.experts.weight", {2, 64, 64}, one),
                       bf16_tensor("model.layers.1.experts.0.up.weight", {64, 64}, one),
                       bf16_tensor("model.layers.1.experts.1.up.weight", {64, 64}, sixteenth),
                       bf16_tensor("model.norm.weight", {64}, one)});
  }

  [[nodiscard]] Model model() const { return Model(folder_.at("m.safetensors")); }

  TestFolder folder_;
};

TEST_F(InspectionTest, FiguresByHand) {
  const Model model = this->model();
  const Inspection inspection = inspect(model, h200());
  ASSERT_EQ(inspection.measured.size(), 4U);
  const ExponentStatistics& mixed = inspection.measured[0].exponents;
  EXPECT_EQ(mixed.packed_bytes, packed_64);
  EXPECT_EQ(mixed.exceptions, 2U);
  EXPECT_EQ(mixed.histogram[123], 2047U);
  EXPECT_EQ(mixed.histogram[127], 2047U);
  const ExponentStatistics& stack = inspection.measured[1].exponents;
  EXPECT_EQ(stack.matrices, 2U);
  EXPECT_EQ(stack.packed_bytes, 2 * packed_64);
  EXPECT_EQ(stack.entropy(), 0);
  EXPECT_EQ(inspection.total.weights, 5U * 4096);
  EXPECT_EQ(inspection.bytes_before, 5U * 8192 + 128);
  EXPECT_EQ(inspection.bytes_after, 3 * packed_64 + stack.packed_bytes + 128);
  ASSERT_EQ(inspection.layers.size(), 2U);
  EXPECT_EQ(inspection.layers.at(1).weights, 4U * 4096);
  EXPECT_DOUBLE_EQ(inspection.layers.at(1).ideal_bits(), 8)
      << "each tensor has a single exponent, though not the same";
  ASSERT_EQ(inspection.others.size(), 1U);
  EXPECT_EQ(inspection.others[0].tensor->original.name, "model.norm.weight");
}

// The roofline at m = 1: weights, 64 x and 64 outputs of 2 bytes, over 4.8 TB/s.
TEST_F(InspectionTest, TokenByHand) {
  const Model model = this->model();
  const TokenCost all = inspect(model, h200()).token;
  EXPECT_DOUBLE_EQ(all.bytes_before, 5 * 8192) << "without a config.json all experts count";
  EXPECT_NEAR(all.us_before, 5 * (8192 + 256) / 4.8e6, 1e-12);
  write_text(folder_.at("config.json"),
             R"({"num_local_experts": 2, "num_experts_per_tok": 1, "hidden_size": 64})");
  const Model with_config = this->model();
  const TokenCost half = inspect(with_config, h200()).token;
  EXPECT_DOUBLE_EQ(half.bytes_before, 8192 + 2 * 8192) << "half of four expert matrices";
  EXPECT_NEAR(half.us_after, 3 * (packed_64 + 256.0) / 4.8e6, 1e-12);
  EXPECT_TRUE(contains(half.assumptions.front(), "2 experts a token reads 1"));
}

TEST_F(InspectionTest, TiedOutputLayerReadsTheEmbeddings) {
  write_safetensors(folder_.at("m.safetensors"),
                    {bf16_tensor("model.embed_tokens.weight", {128, 64}, one),
                     bf16_tensor("model.layers.0.q_proj.weight", {64, 64}, one)});
  EXPECT_DOUBLE_EQ(inspect(model(), h200()).token.bytes_before, 8192);
  write_text(folder_.at("config.json"), R"({"tie_word_embeddings": true})");
  EXPECT_DOUBLE_EQ(inspect(model(), h200()).token.bytes_before, 8192 + 16384);
}

TEST_F(InspectionTest, OneTensor) {
  InspectOptions options = h200();
  options.tensor = "model.norm.weight";
  std::vector<double> progress;
  options.progress = [&](const std::string&, double done) { progress.push_back(done); };
  const Model model = this->model();
  const Inspection inspection = inspect(model, options);
  ASSERT_EQ(inspection.measured.size(), 1U);
  EXPECT_EQ(inspection.total.weights, 64U);
  EXPECT_EQ(progress, std::vector<double>{1.0});
  const std::string text = inspection_text(model, inspection, true);
  EXPECT_TRUE(contains(text, "pack keeps this tensor as it is"));
  EXPECT_TRUE(contains(text, "     127 | 2^0 .. 2^1                     64       100 %  ####"));
  options.tensor = "q_proj";
  try {
    static_cast<void>(inspect(model, options));
    FAIL() << "no such tensor";
  } catch (const Error& error) {
    EXPECT_TRUE(contains(error.what(), "names that contain it: model.layers.0.q_proj.weight"));
  }
}

TEST_F(InspectionTest, OtherDtypesHaveNoBf16Exponents) {
  write_safetensors(folder_.at("m.safetensors"),
                    {{"a.weight", "F32", {64, 64}, std::string(16384, 0)}});
  InspectOptions options = h200();
  const Model model = this->model();
  const Inspection inspection = inspect(model, options);
  EXPECT_TRUE(inspection.measured.empty());
  EXPECT_TRUE(contains(inspection_text(model, inspection, false), "There is nothing to pack."));
  EXPECT_TRUE(contains(inspection_html(model, inspection, false), "nothing to pack"));
  options.tensor = "a.weight";
  EXPECT_THROW(static_cast<void>(inspect(model, options)), Error);
}

TEST_F(InspectionTest, ExpertsShareALine) {
  const Model model = this->model();
  const Inspection inspection = inspect(model, h200());
  const std::vector<TableRow> rows = table_rows(inspection);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[2].name, "model.layers.1.experts.*.up.weight");
  EXPECT_EQ(rows[2].tensors, 2U);
  EXPECT_EQ(rows[2].entropy(), 0) << "the mean over its tensors";
  EXPECT_EQ(window_text(rows[0].exponents), "2^-5 .. 2^11");
  const std::string text = inspection_text(model, inspection, false);
  EXPECT_TRUE(contains(text, "model.layers.1.experts.*.up.weight (2)"));
  EXPECT_TRUE(contains(text, "Outside their window: 2 of 20,480 weights"));
}

TEST_F(InspectionTest, JsonAndHtml) {
  const Model model = this->model();
  const Inspection inspection = inspect(model, h200());
  const auto json = nlohmann::json::parse(inspection_json(model, inspection));
  EXPECT_EQ(json["schema"], "slimgemm-inspect-1");
  EXPECT_EQ(json["tensors"][0]["exponents"],
            nlohmann::json::parse("[[0, 1], [123, 2047], [127, 2047], [255, 1]]"));
  EXPECT_EQ(json["tensors"][0]["packed_bytes"], packed_64);
  EXPECT_EQ(json["kept"][0]["name"], "model.norm.weight");
  EXPECT_EQ(json["layers"].size(), 2U);
  const std::string html = inspection_html(model, inspection, false);
  std::size_t charts = 0;
  for (std::size_t at = 0; (at = html.find("<svg ", at)) != std::string::npos; ++at) ++charts;
  EXPECT_EQ(charts, 4U) << "magnitudes, distances, layers, before and after";
  EXPECT_TRUE(contains(html, "class=\"shade\""));
  EXPECT_FALSE(contains(html, "http")) << "no outside resources";
  EXPECT_TRUE(contains(html, "id=\"result\""));
}

TEST_F(InspectionTest, NamesCanNotBreakThePage) {
  write_safetensors(folder_.at("m.safetensors"),
                    {bf16_tensor("</script><b>.weight", {64, 64}, one)});
  const Model model = this->model();
  const std::string html = inspection_html(model, inspect(model, h200()), false);
  EXPECT_FALSE(contains(html, "</script><b>"));
  EXPECT_TRUE(contains(html, "&lt;/script&gt;&lt;b&gt;"));
}

}  // namespace
}  // namespace slimgemm::inspect

#endif
