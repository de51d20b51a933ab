// SPDX-License-Identifier: Apache-2.0
#include "lab/score.hpp"

#include <gtest/gtest.h>
#include <slimgemm/error.hpp>

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>

namespace slimgemm::lab {
namespace {

constexpr const char* published_path = SLIMGEMM_SOURCE_DIR "/labs/published.csv";

std::string published_text() {
  std::ifstream file(published_path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Score score_of(const std::string& csv, double weight_bits = 16) {
  return compute_score(parse_times_csv(csv, "test.csv"), weight_bits);
}

/// A load's five shapes, baseline 2 us and ours 1 us each.
std::string five_shapes(const std::string& load) {
  std::string csv;
  for (const judge::LayerInfo& layer : judge::layers()) {
    csv += load + "," + std::string(layer.name) + ",2,1\n";
  }
  return csv;
}

TEST(Score, PublishedTableGivesThePublishedFigures) {
  const Score score = compute_score(read_times(published_path));
  const double speedups[] = {1.555, 1.406, 1.199, 1.898, 1.108, 1.064};
  const double floors[] = {28.85, 41.42, 41.78, 28.99, 43.90, 51.67};
  ASSERT_EQ(score.loads.size(), load_count);
  for (std::size_t i = 0; i < load_count; ++i) {
    EXPECT_NEAR(score.loads[i].time.speedup(), speedups[i], 0.0005) << score.loads[i].load.name;
    EXPECT_NEAR(score.loads[i].floors.dense_us, floors[i], 0.005) << score.loads[i].load.name;
    EXPECT_EQ(score.loads[i].load.name, judge::loads()[i].name);
    EXPECT_TRUE(score.loads[i].whole);
  }
  ASSERT_TRUE(score.score);
  EXPECT_NEAR(*score.score, 1.343, 0.0005);
  EXPECT_EQ(score.whole_loads, 6);
}

TEST(Score, EditedFigureChangesTheScore) {
  std::string text = published_text();
  const std::size_t at = text.find("38.25");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 5, "35");
  EXPECT_NEAR(score_of(text).score.value(), 1.363, 0.0005);
}

TEST(Score, LoadOfFiveShapesTakesTheirSum) {
  const Score score = score_of("load,layer,baseline_us,ours_us\n" + five_shapes("decode 16"));
  ASSERT_EQ(score.loads.size(), 1U);
  EXPECT_TRUE(score.loads[0].whole);
  EXPECT_DOUBLE_EQ(score.loads[0].time.baseline_us, 10);
  EXPECT_DOUBLE_EQ(score.loads[0].time.ours_us, 5);
  EXPECT_DOUBLE_EQ(score.score.value(), 2);
  EXPECT_EQ(score.whole_loads, 1);
  ASSERT_EQ(score.loads[0].shapes.size(), 5U);
  double floors = 0;
  for (const ShapeScore& shape : score.loads[0].shapes) {
    EXPECT_DOUBLE_EQ(shape.floors.dense_us, judge::floor_us({shape.layer, 16, true}));
    floors += shape.floors.dense_us;
  }
  EXPECT_DOUBLE_EQ(score.loads[0].floors.dense_us, floors);
}

TEST(Score, LoadWithMissingShapesIsLeftOut) {
  const Score score = score_of("load,layer,baseline_us,ours_us\n" + five_shapes("verify 1") +
                               "verify 16,pooler,30,10\nverify 16,o,6,2\n");
  ASSERT_EQ(score.loads.size(), 2U);
  EXPECT_FALSE(score.loads[1].whole);
  EXPECT_DOUBLE_EQ(score.loads[1].time.speedup(), 3);
  EXPECT_DOUBLE_EQ(score.loads[1].floors.dense_us,
                   judge::floor_us({judge::Layer::pooler, 128, true}) +
                       judge::floor_us({judge::Layer::o, 128, true}));
  EXPECT_DOUBLE_EQ(score.score.value(), 2);
  EXPECT_FALSE(score_of("load,layer,baseline_us,ours_us\nverify 16,o,6,2\n").score);
}

TEST(Score, ShapesBesideASumDoNotChangeIt) {
  const Score score = score_of(
      "load,baseline_us,ours_us\ndecode 1,60,40\nload,layer,baseline_us,ours_us\n"
      "decode 1,pooler,20,13.77\n");
  ASSERT_EQ(score.loads.size(), 1U);
  EXPECT_DOUBLE_EQ(score.loads[0].time.ours_us, 40);
  EXPECT_NEAR(score.loads[0].floors.dense_us, 28.85, 0.005);
  ASSERT_EQ(score.loads[0].shapes.size(), 1U);
  EXPECT_NEAR(score.loads[0].shapes[0].floors.dense_us, 13.99, 0.02);
}

TEST(Score, PackedFloorsLeaveTheRouterAlone) {
  const std::string csv = "load,layer,baseline_us,ours_us\n" + five_shapes("decode 1");
  const Score score = score_of(csv, 12);
  for (const ShapeScore& shape : score.loads.at(0).shapes) {
    if (shape.layer == judge::Layer::router) {
      EXPECT_NEAR(shape.floors.packed_us, shape.floors.dense_us, 1e-9);
    } else {
      EXPECT_NEAR(shape.floors.packed_us / shape.floors.dense_us, 0.75, 0.001);
    }
  }
  EXPECT_THROW(score_of(csv, 0), Error);
  EXPECT_THROW(score_of(csv, 65), Error);
  EXPECT_THROW(score_of(csv, std::nan("")), Error);
}

TEST(Score, ServingStepRunsEveryShape62Times) {
  const Score score = score_of("load,baseline_us,ours_us\ndecode 1,59.49,38.25\n");
  EXPECT_NEAR(score.loads.at(0).baseline_step_ms(), 3.68838, 1e-9);
  EXPECT_NEAR(score.loads.at(0).ours_step_ms(), 2.3715, 1e-9);
}

TEST(Score, TextNamesTheShapeFurthestFromItsFloor) {
  const TimesTable table = parse_times_csv(
      "load,layer,baseline_us,ours_us\ndecode 1,o,6,5\ndecode 16,pooler,20,19\n", "test.csv");
  const std::string text = score_text(compute_score(table), table);
  EXPECT_NE(text.find("Most time above the floor: decode 16 pooler"), std::string::npos) << text;
  EXPECT_NE(text.find("decode 1 (1 of 5)"), std::string::npos) << text;
  EXPECT_NE(text.find("Score: none"), std::string::npos) << text;
}

}  // namespace
}  // namespace slimgemm::lab
