// SPDX-License-Identifier: Apache-2.0
// The CPU backend against FP64, for every target of this machine, every encoding and every path
// through the kernels.
#include "unit/cpu_test_support.hpp"

#include "cpu/kernels.hpp"

#include <thread>

namespace slimgemm::test {
namespace {

constexpr Encoding encodings[] = {Encoding::split12, Encoding::raw16, Encoding::raw32};

Matrix random_matrix(std::int64_t n, std::int64_t k, Encoding encoding, unsigned seed) {
  // raw16 needs an exception to be chosen.
  if (encoding == Encoding::raw32) return random_f32(n, k, seed);
  Matrix matrix = random_bf16(n, k, 0.002, seed);
  if (encoding == Encoding::raw16) matrix.values[0] = 0.0F;
  return matrix;
}

class CpuBackend : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Targets, CpuBackend, testing::ValuesIn(target_names()),
                         [](const auto& info) { return info.param; });

TEST_P(CpuBackend, EveryTokenCount) {
  for (const Encoding encoding : encodings) {
    const Matrix matrix = random_matrix(35, 330, encoding, 1);
    const Linear linear = make_linear(pack_as(matrix, encoding), GetParam());
    for (std::int64_t m = 1; m <= 130; m += m == 40 ? 23 : m == 66 ? 64 : 1) {
      SCOPED_TRACE(std::string(name(encoding)) + ", m = " + std::to_string(m));
      const Activations x = random_x(m, matrix.k, matrix.k, 0, static_cast<unsigned>(m));
      expect_near_reference(run_guarded(linear, x), matrix, x, linear.out_dtype());
    }
  }
}

TEST_P(CpuBackend, OddShapesStridesAndAlignments) {
  const std::int64_t shapes[][2] = {{1, 1},    {1, 64},  {16, 64},   {17, 15},  {15, 16},
                                    {33, 17},  {48, 63}, {2, 65},    {31, 255}, {16, 257},
                                    {130, 80}, {5, 513}, {64, 1024}, {19, 2047}};
  for (const auto [n, k] : shapes) {
    for (const Encoding encoding : encodings) {
      const Matrix matrix = random_matrix(n, k, encoding, static_cast<unsigned>(n * k));
      const Linear linear = make_linear(pack_as(matrix, encoding), GetParam());
      for (const std::int64_t m : {1, 2, 3, 4, 7, 13, 26}) {
        SCOPED_TRACE(std::string(name(encoding)) + ", n = " + std::to_string(n) +
                     ", k = " + std::to_string(k) + ", m = " + std::to_string(m));
        const Activations x = random_x(m, k, k + m % 3 * 5, static_cast<int>(m % 5), 7);
        expect_near_reference(run_guarded(linear, x), matrix, x, linear.out_dtype());
      }
    }
  }
}

TEST_P(CpuBackend, MoreTokensThanABatch) {
  for (const Encoding encoding : encodings) {
    const Matrix matrix = random_matrix(40, 200, encoding, 3);
    const Linear linear = make_linear(pack_as(matrix, encoding), GetParam());
    const Activations x = random_x(301, matrix.k, matrix.k + 1, 1, 5);
    expect_near_reference(run_guarded(linear, x), matrix, x, linear.out_dtype());
  }
}

TEST_P(CpuBackend, AnyShareOfExceptions) {
  for (const double share : {0.0005, 0.01, 0.4, 1.0}) {
    const Matrix matrix = random_bf16(50, 700, share, 11);
    const Linear linear = make_linear(pack_as(matrix, Encoding::split12), GetParam());
    for (const std::int64_t m : {1, 2, 3, 5, 17, 40}) {
      SCOPED_TRACE("share " + std::to_string(share) + ", m = " + std::to_string(m));
      const Activations x = random_x(m, matrix.k, matrix.k, 0, 12);
      expect_near_reference(run_guarded(linear, x), matrix, x, linear.out_dtype());
    }
  }
}

TEST_P(CpuBackend, RowSlicesGiveTheSameBits) {
  for (const Encoding encoding : encodings) {
    const Matrix matrix = random_matrix(150, 300, encoding, 13);
    const Linear whole = make_linear(pack_as(matrix, encoding), GetParam());
    for (const std::int64_t m : {1, 3, 20}) {
      const Activations x = random_x(m, matrix.k, matrix.k, 0, 14);
      const std::vector<float> all = run_guarded(whole, x);
      const std::int64_t slices[][2] = {{0, 1},    {0, 16},   {16, 17},
                                        {32, 150}, {64, 100}, {144, 150}};
      for (const auto [begin, end] : slices) {
        const std::vector<float> part = run_guarded(whole.rows(begin, end), x);
        for (std::int64_t t = 0; t < m; ++t) {
          for (std::int64_t row = begin; row < end; ++row) {
            ASSERT_EQ(part[static_cast<std::size_t>(t * (end - begin) + row - begin)],
                      all[static_cast<std::size_t>(t * matrix.n + row)])
                << name(encoding) << " [" << begin << ", " << end << "), token " << t << ", row "
                << row;
          }
        }
      }
    }
  }
}

TEST_P(CpuBackend, ThreadsAndRepetitionChangeNoBit) {
  for (const Encoding encoding : encodings) {
    const Matrix matrix = random_matrix(600, 520, encoding, 15);
    const PackedMatrix packed = pack_as(matrix, encoding);
    const Linear one = make_linear(packed, GetParam(), 1);
    for (const std::int64_t m : {1, 5, 40, 150}) {
      const Activations x = random_x(m, matrix.k, matrix.k, 0, 16);
      const std::vector<float> expected = run_guarded(one, x);
      EXPECT_EQ(run_guarded(one, x), expected);
      for (const int threads : {2, 3, 7}) {
        EXPECT_EQ(run_guarded(make_linear(packed, GetParam(), threads), x), expected)
            << name(encoding) << ", m = " << m << ", " << threads << " threads";
      }
    }
  }
}

TEST_P(CpuBackend, ConcurrentCallsDoNotMix) {
  const Matrix matrix = random_matrix(200, 400, Encoding::split12, 17);
  const Linear linear = make_linear(pack_as(matrix, Encoding::split12), GetParam());
  constexpr int callers = 4;
  std::vector<Activations> x;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < callers; ++i) {
    x.push_back(random_x(1 + 9 * i, matrix.k, matrix.k, 0, 18U + static_cast<unsigned>(i)));
    expected.push_back(run_guarded(linear, x.back()));
  }
  std::vector<int> wrong(callers, 0);
  std::vector<std::thread> threads;
  threads.reserve(callers);
  for (int i = 0; i < callers; ++i) {
    threads.emplace_back([&, i] {
      const auto at = static_cast<std::size_t>(i);
      for (int repeat = 0; repeat < 20; ++repeat) {
        if (run_guarded(linear, x[at]) != expected[at]) ++wrong[at];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(callers, 0));
}

TEST_P(CpuBackend, PlanNamesTheKernelAndItsBytes) {
  const PackedMatrix packed = pack_as(random_bf16(100, 130, 0.0, 19), Encoding::split12);
  const Linear linear = make_linear(packed, GetParam(), 2);
  const Plan plan = linear.plan(1);
  EXPECT_EQ(plan.kernel, "cpu/" + GetParam() + "/split12/direct_t1");
  EXPECT_EQ(plan.grid_ctas, 7);
  EXPECT_EQ(plan.threads_per_cta, 2);
  ASSERT_LE(packed.exception_count(), format::group_entries);  // one group a row tile
  EXPECT_EQ(plan.weight_bytes, 7 * 3 * format::split12_tile_bytes + 7 * 128);
  EXPECT_NE(linear.plan(40).kernel.find("/panel_t"), std::string::npos);
  // A slice of two tiles reads two sevenths.
  EXPECT_EQ(linear.rows(16, 48).plan(1).weight_bytes, 2 * 3 * format::split12_tile_bytes + 2 * 128);
}

TEST(CpuTargets, ScalarIsAlwaysThere) { EXPECT_EQ(target_names().front(), "scalar"); }

TEST(CpuTargets, TheLastIsTheDefault) {
  EXPECT_EQ(cpu::find_target("").name, target_names().back());
}

TEST(CpuTargets, TheDefaultTakesTheDotProductForFewTokensOnly) {
  const Matrix matrix = random_bf16(64, 128, 0.001, 21);
  const Linear linear = make_linear(pack_as(matrix, Encoding::split12), "");
  const bool has_dot = target_names().back() == "avx512bf16";
  EXPECT_EQ(linear.plan(1).kernel.find("/avx512bf16/") != std::string::npos, has_dot);
  EXPECT_EQ(linear.plan(16).kernel.find("/avx512bf16/"), std::string::npos);
  for (const std::int64_t m : {1, 3, 4, 16}) {
    const Activations x = random_x(m, matrix.k, matrix.k, 0, 22);
    expect_near_reference(run_guarded(linear, x), matrix, x, linear.out_dtype());
  }
}

TEST(CpuTargets, UnknownNamesAreRefusedByName) {
  const PackedMatrix packed = pack_as(random_bf16(16, 16, 0.0, 20), Encoding::split12);
  try {
    make_linear(packed, "avx1024");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    const std::string message = error.what();
    EXPECT_NE(message.find("SLIMGEMM_CPU_TARGET=avx1024"), std::string::npos) << message;
    for (const std::string& target : target_names()) {
      EXPECT_NE(message.find(target), std::string::npos) << message;
    }
  }
}

TEST(CpuTargets, MissingInstructionsAreRefusedByName) {
  for (const std::string target : {"avx2", "avx512", "avx512bf16"}) {
    const std::vector<std::string> available = target_names();
    if (std::find(available.begin(), available.end(), target) != available.end()) continue;
    try {
      cpu::find_target(target);
      ADD_FAILURE() << "no error for " << target;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::unsupported);
      EXPECT_NE(std::string(error.what()).find(target), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace slimgemm::test
