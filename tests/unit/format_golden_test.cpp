// SPDX-License-Identifier: Apache-2.0
// The files under tests/golden pin the format: what packs to them, and what they unpack to.
#include <slimgemm/packed.hpp>

#include "codec/checksum.hpp"
#include "codec/reference_decoder.hpp"
#include "golden/cases.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace slimgemm {
namespace {

const std::string folder = std::string(SLIMGEMM_TEST_DATA) + "/golden/";

test::Bytes read_file(const std::string& name) {
  std::ifstream file(folder + name + ".slimpack", std::ios::binary);
  EXPECT_TRUE(file.good()) << name;
  const std::vector<char> chars{std::istreambuf_iterator<char>(file), {}};
  test::Bytes bytes(chars.size());
  std::memcpy(bytes.data(), chars.data(), chars.size());
  return bytes;
}

// What a build without XXH3 writes in place of `bytes`.
test::Bytes without_checksums(test::Bytes bytes) {
  format::Header header = test::header_of(bytes);
  header.flags &= ~std::uint32_t{format::has_checksums};
  header.payload_xxh3 = 0;
  header.header_xxh3 = 0;
  test::seal(bytes, header);
  return bytes;
}

std::vector<std::uint32_t> unpacked_bits(const PackedMatrix& packed) {
  std::vector<std::uint32_t> bits(static_cast<std::size_t>(packed.n() * packed.k()));
  if (packed.dtype() == DType::f32) {
    std::vector<float> out(bits.size());
    unpack(packed, out);
    std::memcpy(bits.data(), out.data(), out.size() * sizeof(float));
  } else {
    std::vector<std::uint16_t> out(bits.size());
    unpack(packed, out);
    bits.assign(out.begin(), out.end());
  }
  return bits;
}

TEST(FormatGolden, PackGivesTheFile) {
  for (const golden::GoodFile& good : golden::good_files()) {
    const test::Bytes file = read_file(good.name);
    const test::Bytes wanted = checksums_available() ? file : without_checksums(file);
    EXPECT_TRUE(test::copy_bytes(golden::pack_elements(good)) == wanted) << good.name;
  }
}

TEST(FormatGolden, UnpackGivesTheFormula) {
  for (const golden::GoodFile& good : golden::good_files()) {
    for (const test::Bytes& file :
         {read_file(good.name), without_checksums(read_file(good.name))}) {
      const PackedMatrix packed = PackedMatrix::from_bytes(file);
      EXPECT_EQ(packed.n(), good.n) << good.name;
      EXPECT_EQ(packed.k(), good.k) << good.name;
      EXPECT_EQ(packed.dtype(), good.dtype) << good.name;
      EXPECT_EQ(good.name.rfind(name(packed.encoding()), 0), 0U) << good.name;
      EXPECT_TRUE(unpacked_bits(packed) == golden::elements(good)) << good.name;
    }
  }
}

TEST(FormatGolden, ReferenceDecoderGivesTheFormula) {
  for (const golden::GoodFile& good : golden::good_files()) {
    const reference::Decoded decoded = reference::decode(read_file(good.name));
    std::vector<std::uint32_t> bits = decoded.f32;
    if (good.dtype == DType::bf16) bits.assign(decoded.bf16.begin(), decoded.bf16.end());
    EXPECT_TRUE(bits == golden::elements(good)) << good.name;
  }
}

// The files show what README.md says they show.
TEST(FormatGolden, FilesCoverTheFormat) {
  const auto edges = PackedMatrix::from_bytes(read_file("split12_edges"));
  EXPECT_EQ(edges.window_base(), 112);
  const format::Header h = test::header_of(edges.bytes());
  EXPECT_GT(h.group_count, 2U);
  EXPECT_EQ(h.flags, format::known_flags);
  EXPECT_EQ(PackedMatrix::from_bytes(read_file("split12_one_tile")).exception_count(), 0);
  const auto base_0 = PackedMatrix::from_bytes(read_file("split12_base_0"));
  EXPECT_EQ(base_0.window_base(), 0);
  EXPECT_GT(base_0.exception_count(), 0);
  EXPECT_EQ(PackedMatrix::from_bytes(read_file("split12_all_zero")).exception_count(), 27);
}

TEST(FormatGolden, BadFilesAreRefused) {
  for (const golden::BadFile& bad : golden::bad_files()) {
    if (bad.name == "bad_payload_checksum" && !checksums_available()) continue;
    try {
      PackedMatrix::from_bytes(read_file(bad.name));
      ADD_FAILURE() << bad.name << " was accepted";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::corrupt_data) << bad.name;
      EXPECT_NE(std::string(e.what()).find(bad.error), std::string::npos)
          << bad.name << ": \"" << bad.error << "\" is not in \"" << e.what() << "\"";
    }
  }
}

TEST(FormatGolden, BadFilesAreWhatTheirChangeMakesThem) {
  if (!checksums_available()) GTEST_SKIP() << "this build has no XXH3";
  for (const golden::BadFile& bad : golden::bad_files()) {
    EXPECT_TRUE(golden::spoil(bad, read_file(bad.good)) == read_file(bad.name)) << bad.name;
  }
}

TEST(FormatGolden, NoFileIsForgotten) {
  std::set<std::string> wanted;
  for (const auto& good : golden::good_files()) wanted.insert(good.name);
  for (const auto& bad : golden::bad_files()) wanted.insert(bad.name);
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".slimpack") found.insert(entry.path().stem().string());
  }
  EXPECT_EQ(found, wanted);
}

}  // namespace
}  // namespace slimgemm
