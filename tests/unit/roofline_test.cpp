// SPDX-License-Identifier: Apache-2.0
#include "lab/roofline.hpp"

#include "lab/number.hpp"

#include <gtest/gtest.h>
#include <slimgemm/error.hpp>

#include <limits>
#include <string>

namespace slimgemm::lab {
namespace {

template <typename Call>
std::string refusal(Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "accepted";
}

TEST(Roofline, QkvGateAt16IsMemoryBoundThirteenTimes) {
  const Roofline line = roofline({2304, 8192, 16}, named_gpu("h200"));
  EXPECT_DOUBLE_EQ(line.bytes, 2304.0 * 8192 * 2 + 16.0 * 8192 * 2 + 16.0 * 2304 * 2);
  EXPECT_DOUBLE_EQ(line.flops, 2.0 * 16 * 2304 * 8192);
  EXPECT_NEAR(line.memory_us, 7.9, 0.05);
  EXPECT_NEAR(line.math_us, 0.61, 0.005);
  EXPECT_EQ(line.binds(), Term::memory);
  EXPECT_NEAR(line.margin(), 13, 0.05);
  EXPECT_NEAR(line.flop_per_byte(), 15.9, 0.05);
}

TEST(Roofline, AgreesWithTheJudgeOnEveryShape) {
  const Gpu h200 = named_gpu("h200");
  for (const judge::Case& shape : judge::all_cases()) {
    const Roofline line = roofline(layer_matmul(shape.layer, shape.m), h200);
    EXPECT_NEAR(line.floor_us(), judge::floor_us(shape), 1e-9 * judge::floor_us(shape))
        << judge::info(shape.layer).name << " m = " << shape.m;
  }
}

TEST(Roofline, RidgeOfTheGpus) {
  EXPECT_NEAR(named_gpu("h200").ridge(), 206, 0.5);
  EXPECT_NEAR(named_gpu("h100").ridge(), 295, 0.5);
  EXPECT_DOUBLE_EQ(choose_gpu("custom", 2.0, 500.0).ridge(), 250);
  EXPECT_DOUBLE_EQ(choose_gpu("h200", 4.5, {}).bandwidth_tb_s, 4.5);
  EXPECT_DOUBLE_EQ(choose_gpu("h200", 4.5, {}).peak_tflop_s, 989);
}

TEST(Roofline, MathBindsFromTheMThatItSays) {
  const Gpu h200 = named_gpu("h200");
  for (const double bits : {12.0, 16.0, 32.0}) {
    Matmul matmul{2304, 8192, 1, bits};
    const auto from = math_bound_from_m(matmul, h200);
    ASSERT_TRUE(from);
    matmul.m = *from;
    EXPECT_EQ(roofline(matmul, h200).binds(), Term::math);
    matmul.m = *from - 1;
    EXPECT_EQ(roofline(matmul, h200).binds(), Term::memory);
  }
  // 100 x 100: a row of x and out brings 400 bytes for 20,000 FLOPs, 50 FLOP/byte: never enough.
  EXPECT_FALSE(math_bound_from_m({100, 100, 1}, h200));
  EXPECT_EQ(roofline({100, 100, 1 << 20}, h200).binds(), Term::memory);
}

TEST(Roofline, FewerBitsMoveFewerBytes) {
  const Gpu h200 = named_gpu("h200");
  const double dense = roofline({4096, 8192, 1, 16}, h200).floor_us();
  const double packed = roofline({4096, 8192, 1, 12}, h200).floor_us();
  EXPECT_NEAR(dense, 13.99, 0.005);
  EXPECT_NEAR(packed, 10.49, 0.005);
}

TEST(Roofline, SliceOfTheUnpoolerUpToEight) {
  EXPECT_EQ(layer_matmul(judge::Layer::unpooler, 8).n, 1024);
  EXPECT_EQ(layer_matmul(judge::Layer::unpooler, 9).n, 8192);
  EXPECT_DOUBLE_EQ(layer_matmul(judge::Layer::router, 1).out_bits, 32);
}

TEST(Roofline, RefusalsNameTheValueAndTheLimit) {
  const Gpu h200 = named_gpu("h200");
  EXPECT_EQ(refusal([&] { roofline({0, 1, 1}, h200); }), "N is 0; allowed: 1 to 2147483647");
  EXPECT_EQ(refusal([&] { roofline({1, -5, 1}, h200); }), "K is -5; allowed: 1 to 2147483647");
  EXPECT_EQ(refusal([&] {
              roofline({1, 1, std::int64_t{1} << 31}, h200);
            }),
            "m is 2147483648; allowed: 1 to 2147483647");
  EXPECT_EQ(refusal([&] {
              roofline({1, 1, 1, 0}, h200);
            }),
            "weight bits is 0; allowed: above 0 and at most 64");
  EXPECT_EQ(refusal([&] {
              roofline({1, 1, 1, 16, 65}, h200);
            }),
            "out bits is 65; allowed: above 0 and at most 64");
  EXPECT_EQ(refusal([] { named_gpu("b200"); }),
            "GPU 'b200' is unknown; allowed: h200, h100, custom");
  EXPECT_EQ(refusal([] { layer_named("qkv"); }),
            "layer 'qkv' is unknown; allowed: qkv_gate, o, pooler, unpooler, router");
  EXPECT_EQ(refusal([] { choose_gpu("h200", -1.0, {}); }),
            "bandwidth is -1; allowed: above 0 and at most 10000 TB/s");
  EXPECT_NE(refusal([] { choose_gpu("custom", 4.0, {}); }).find("--flops"), std::string::npos);
  EXPECT_NE(refusal([] {
              choose_gpu("h200", {}, std::numeric_limits<double>::quiet_NaN());
            }).find("peak rate is nan"),
            std::string::npos);
}

TEST(Roofline, MList) {
  EXPECT_EQ(parse_m_list(" 1, 8,16"), (std::vector<std::int64_t>{1, 8, 16}));
  for (const char* text :
       {"", "1,,2", "0", "-3", "8.5", "1;2", "2147483648", "99999999999999999999"}) {
    EXPECT_NE(refusal([&] { parse_m_list(text); }), "accepted") << text;
  }
  std::string many = "1";
  for (int i = 0; i < 64; ++i) {
    many += ",1";
  }
  EXPECT_EQ(refusal([&] { parse_m_list(many); }),
            "65 values of m; at most 64 are allowed in one call");
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

TEST(RooflineSvg, DrawsOnePointForEachM) {
  const Gpu h200 = named_gpu("h200");
  const std::string svg =
      roofline_svg({"", {{2304, 8192, 1}, {2304, 8192, 16}, {2304, 8192, 1024}}, h200});
  EXPECT_EQ(svg.substr(0, 4), "<svg");
  EXPECT_EQ(count(svg, "class=\"point memory\""), 2U);
  EXPECT_EQ(count(svg, "class=\"point math\""), 1U);
  EXPECT_EQ(count(svg, "<text "), count(svg, "</text>"));
  EXPECT_NE(svg.find("m = 16: 7.93 us"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf"), std::string::npos);
}

}  // namespace
}  // namespace slimgemm::lab
