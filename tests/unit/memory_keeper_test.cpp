// SPDX-License-Identifier: Apache-2.0
#include "support/aligned_buffer.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace slimgemm {
namespace {

constexpr std::size_t large_bytes = 4 * AlignedBuffer::huge_page_bytes;

TEST(MemoryKeeper, GivesTheNextBufferTheMemoryOfTheLast) {
  const MemoryKeeper keeper;
  const std::byte* first = nullptr;
  {
    AlignedBuffer buffer(large_bytes);
    first = buffer.data();
  }
  {
    AlignedBuffer smaller(large_bytes / 2);
    EXPECT_EQ(smaller.data(), first);
    EXPECT_EQ(smaller.size(), large_bytes / 2);
    AlignedBuffer other(large_bytes / 2);  // the memory is given once
    EXPECT_NE(other.data(), first);
  }
  AlignedBuffer again(large_bytes);  // its size is not forgotten
  EXPECT_EQ(again.data(), first);
  AlignedBuffer larger(2 * large_bytes);
  larger.data()[2 * large_bytes - 1] = std::byte{1};
}

TEST(MemoryKeeper, SmallBuffersAndOtherThreadsHaveTheirOwn) {
  const MemoryKeeper keeper;
  const std::byte* first = nullptr;
  {
    AlignedBuffer buffer(large_bytes);
    first = buffer.data();
  }
  const AlignedBuffer small(1000);
  EXPECT_NE(small.data(), first);
  std::thread([&] { EXPECT_NE(AlignedBuffer(large_bytes).data(), first); }).join();
  EXPECT_EQ(AlignedBuffer(large_bytes).data(), first);
}

}  // namespace
}  // namespace slimgemm
