// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors_header.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>

namespace slimgemm::checkpoint {
namespace {

class SafetensorsHeaderTest : public testing::Test {
 protected:
  void SetUp() override {
#if !SLIMGEMM_HAVE_JSON
    GTEST_SKIP() << "this build has no JSON";
#endif
  }

  static void expect_corrupt(const std::string& json, std::uint64_t data_bytes,
                             const std::string& part) {
    try {
      parse_header(json, data_bytes, "x.safetensors");
      ADD_FAILURE() << "accepted, but: " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::corrupt_data) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos);
    }
  }
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& begin, const std::string& end) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape +
         R"(,"data_offsets":[)" + begin + "," + end + "]}";
}

TEST_F(SafetensorsHeaderTest, ReadsTensorsInTheOrderOfTheirData) {
  const std::string json = "{" + entry("b", "F32", "[]", "12", "16") +
                           R"(,"__metadata__":{"format":"pt","note":"x"},)" +
                           entry("a", "BF16", "[2,3]", "0", "12") + "}   ";
  const SafetensorsHeader header = parse_header(json, 16, "x");
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, "BF16");
  EXPECT_EQ(header.tensors[0].shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(header.tensors[0].size_bytes(), 12U);
  EXPECT_EQ(header.tensors[1].name, "b");
  EXPECT_TRUE(header.tensors[1].shape.empty());
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.metadata.at("note"), "x");
  EXPECT_EQ(header.header_bytes, json.size());
  EXPECT_EQ(header.data_begin(), 8 + json.size());
  EXPECT_EQ(header.data_bytes(), 16U);
  ASSERT_NE(header.find("b"), nullptr);
  EXPECT_EQ(header.find("b")->begin, 12U);
  EXPECT_EQ(header.find("c"), nullptr);
}

TEST_F(SafetensorsHeaderTest, TakesFilesWithoutTensors) {
  EXPECT_TRUE(parse_header("{}", 0, "x").tensors.empty());
  EXPECT_EQ(parse_header("{}", 0, "x").data_bytes(), 0U);
  expect_corrupt("{}", 1, "its tensors end at byte 0 of 1 bytes of data");
}

TEST_F(SafetensorsHeaderTest, TakesEmptyTensorsBetweenOthers) {
  const std::string json = "{" + entry("a", "BF16", "[1]", "0", "2") + "," +
                           entry("z", "BF16", "[0,18446744073709551615]", "2", "2") + "," +
                           entry("b", "U8", "[3]", "2", "5") + "}";
  const SafetensorsHeader header = parse_header(json, 5, "x");
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[1].name, "z");
  EXPECT_EQ(header.tensors[2].name, "b");
}

TEST_F(SafetensorsHeaderTest, KeepsUnknownDtypes) {
  const std::string json = "{" + entry("a", "Q3_NEW", "[7]", "0", "3") + "}";
  EXPECT_EQ(parse_header(json, 3, "x").tensors[0].dtype, "Q3_NEW");
}

TEST_F(SafetensorsHeaderTest, CountsDtypesBelowAByte) {
  EXPECT_EQ(parse_header("{" + entry("a", "F4", "[2,3]", "0", "3") + "}", 3, "x").data_bytes(), 3U);
  expect_corrupt("{" + entry("a", "F4", "[3]", "0", "2") + "}", 2,
                 "tensor a has 12 bits by its shape and dtype F4, no whole bytes");
}

TEST_F(SafetensorsHeaderTest, RefusesOverlapsHolesAndLies) {
  const std::string a = entry("a", "U8", "[4]", "0", "4");
  expect_corrupt("{" + a + "," + entry("b", "U8", "[4]", "3", "7") + "}", 7,
                 "tensor b lies at bytes 3 to 7, but the one before ends at 4");
  expect_corrupt("{" + a + "," + entry("b", "U8", "[4]", "5", "9") + "}", 9,
                 "tensor b lies at bytes 5 to 9, but the one before ends at 4");
  expect_corrupt("{" + a + "," + entry("b", "U8", "[4]", "4", "8") + "}", 7,
                 "tensor b lies at bytes 4 to 8 of 7 bytes of data: the file is cut short");
  expect_corrupt("{" + a + "}", 5, "its tensors end at byte 4 of 5 bytes of data");
  expect_corrupt("{" + entry("a", "U8", "[4]", "4", "0") + "}", 4, "tensor a lies at bytes 4 to 0");
  expect_corrupt("{" + entry("a", "F32", "[4]", "0", "4") + "}", 4,
                 "tensor a takes 4 bytes, but its shape and dtype make 16");
}

TEST_F(SafetensorsHeaderTest, RefusesSizesThatOverflow) {
  expect_corrupt("{" + entry("a", "BF16", "[4294967296,4294967296]", "0", "0") + "}", 0,
                 "tensor a has a shape whose size exceeds 2^64 - 1 bits");
  expect_corrupt("{" + entry("a", "BF16", "[2305843009213693952]", "0", "0") + "}", 0,
                 "tensor a has a shape whose size exceeds 2^64 - 1 bits");
  expect_corrupt("{" + entry("a", "U8", "[18446744073709551616]", "0", "0") + "}", 0,
                 "tensor a has 18446744073709551616 in shape: it must be a whole number");
  expect_corrupt("{" + entry("a", "U8", "[1]", "0", "18446744073709551615") + "}", 1,
                 "of 1 bytes of data");
  std::string sizes = "1";
  for (int i = 0; i < 64; ++i) sizes += ",1";
  expect_corrupt("{" + entry("a", "U8", "[" + sizes + "]", "0", "1") + "}", 1,
                 "tensor a shape has more than 64 sizes");
}

TEST_F(SafetensorsHeaderTest, RefusesNamesAndFieldsTwice) {
  const std::string a = entry("a", "U8", "[0]", "0", "0");
  expect_corrupt("{" + a + "," + a + "}", 0, "the tensor a appears twice");
  expect_corrupt(R"({"__metadata__":{},"__metadata__":{}})", 0, "__metadata__ appears twice");
  expect_corrupt(R"({"__metadata__":{"x":"1","x":"2"}})", 0, "its __metadata__ has x twice");
  expect_corrupt(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0,
                 "tensor a has dtype twice");
}

TEST_F(SafetensorsHeaderTest, RefusesOtherFieldsAndTypes) {
  expect_corrupt(R"({"a":1})", 0, "a is 1: it must be an object");
  expect_corrupt(R"({"a":[1]})", 0, "a is an array: it must be an object");
  expect_corrupt(R"({"__metadata__":{"x":1}})", 0,
                 "its __metadata__ has x = 1: it must be a string");
  expect_corrupt(R"({"__metadata__":{"x":{}}})", 0, "x = an object: it must be a string");
  expect_corrupt(R"({"a":{"dtype":5}})", 0, "tensor a has dtype = 5: it must be a string");
  expect_corrupt(R"({"a":{"shape":"5"}})", 0, "shape = \"5\": it must be an array");
  expect_corrupt(R"({"a":{"shape":[[1]]}})", 0, "tensor a has an array in shape");
  expect_corrupt(R"({"a":{"shape":[1.5]}})", 0, "tensor a has 1.5 in shape");
  expect_corrupt(R"({"a":{"shape":[null]}})", 0, "tensor a has null in shape");
  expect_corrupt(R"({"a":{"data_offsets":[1]}})", 0, "tensor a data_offsets has 1 numbers");
  expect_corrupt(R"({"a":{"data_offsets":[1,2,3]}})", 0, "data_offsets has more than two");
  expect_corrupt(R"({"a":{"extra":1}})", 0, "tensor a has a field extra");
  expect_corrupt(R"({"a":{}})", 0, "tensor a has no dtype");
  expect_corrupt(R"({"a":{"dtype":"U8"}})", 0, "tensor a has no shape");
  expect_corrupt(R"({"a":{"dtype":"U8","shape":[]}})", 0, "tensor a has no data_offsets");
}

TEST_F(SafetensorsHeaderTest, RefusesWhatIsNotAnObjectOfJson) {
  expect_corrupt("", 0, "its header is empty");
  expect_corrupt("[]", 0, "its header is not a JSON object");
  expect_corrupt(" {}", 0, "its header is not a JSON object");
  expect_corrupt("{\"a\":", 0, "its header is not JSON");
  expect_corrupt("{} x", 0, "its header is not JSON");
  expect_corrupt(std::string("{}\0", 3), 0, "its header is not JSON");
  expect_corrupt("{\"\xFF\":1}", 0, "its header is not JSON");
  expect_corrupt(R"({"a":{"shape":[1e999]}})", 0, "its header is not JSON");
}

TEST_F(SafetensorsHeaderTest, MessagesEchoNoHugeNumber) {
  const std::string number = "1." + std::string(3'000'000, '7');
  for (const std::string& json :
       {R"({"a":{"shape":[)" + number + "]}}", R"({"a":{"data_offsets":[)" + number + "]}}",
        R"({"a":)" + number + "}", R"({"__metadata__":{"a":)" + number + "}}"}) {
    try {
      parse_header(json, 0, "x");
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 500U);
    }
  }
}

TEST_F(SafetensorsHeaderTest, MessagesStayReadable) {
  EXPECT_EQ(printable("a\n\x1b[2J"), "a\\x0a\\x1b[2J");
  EXPECT_EQ(printable(std::string(500, 'a')), std::string(200, 'a') + "... (500 bytes)");
  expect_corrupt("{\"" + std::string(100'000, 'n') + "\":1}", 0, "... (100000 bytes) is 1");
}

TEST(SafetensorsHeaderBytes, AreCheckedBeforeTheyAreRead) {
  const auto message = [](std::uint64_t header, std::uint64_t file) -> std::string {
    try {
      check_header_bytes(header, file, "x");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(100, 108), "");
  EXPECT_NE(message(100, 107).find("100 bytes, but only 99 follow"), std::string::npos);
  EXPECT_NE(message(0, 7).find("it has 7 bytes"), std::string::npos);
  EXPECT_NE(message(100'000'001, 1 << 30).find("more than 100000000"), std::string::npos);
  EXPECT_NE(message(std::numeric_limits<std::uint64_t>::max(), 8).find("more than"),
            std::string::npos);
}

TEST(SafetensorsDtypes, HaveTheirSizes) {
  EXPECT_EQ(dtype_bits("BF16"), 16);
  EXPECT_EQ(dtype_bits("F64"), 64);
  EXPECT_EQ(dtype_bits("F8_E4M3"), 8);
  EXPECT_FALSE(dtype_bits("bf16"));
  EXPECT_EQ(element_count({}), 1U);
  EXPECT_EQ(element_count({3, 4}), 12U);
  EXPECT_FALSE(element_count({std::uint64_t{1} << 33, std::uint64_t{1} << 33}));
}

}  // namespace
}  // namespace slimgemm::checkpoint
