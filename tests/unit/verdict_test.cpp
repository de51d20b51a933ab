// SPDX-License-Identifier: Apache-2.0
#include "judge/verdict.hpp"

#include "judge/executor.hpp"
#include "support/bf16.hpp"

#include <slimgemm/error.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace slimgemm::judge {
namespace {

// An m x n output with its reference 1, 2, 3, ... in BF16 or FP32; row 1 is a probe row.
class Sample {
 public:
  explicit Sample(DType dtype, std::int64_t m = 4, std::int64_t n = 8)
      : shape{Layer::pooler, "pooler", m, n, 16, dtype, true} {
    input.m = m;
    input.k = 16;
    input.probe.assign(static_cast<std::size_t>(m), 0);
    input.probe[1] = 1;
    buffer.assign(guarded_bytes(shape), static_cast<std::byte>(poison_byte));
    for (std::int64_t i = 0; i < m * n; ++i) {
      reference.push_back(static_cast<double>(i + 1));
      set(i, static_cast<float>(i + 1));
    }
  }

  void set(std::int64_t index, float value) {
    if (shape.dtype == DType::f32) {
      std::memcpy(place(index), &value, sizeof value);
    } else {
      const std::uint16_t bits = float_to_bf16(value);
      std::memcpy(place(index), &bits, sizeof bits);
    }
  }
  std::byte* place(std::int64_t index) {
    return buffer.data() + guard_bytes + static_cast<std::size_t>(index * size_bytes(shape.dtype));
  }
  [[nodiscard]] OutputCheck check() const { return check_output(shape, input, reference, buffer); }

  Shape shape;
  Input input;
  std::vector<double> reference;
  std::vector<std::byte> buffer;
};

const Failure* find(const OutputCheck& check, FailureKind kind) {
  for (const Failure& failure : check.failures) {
    if (failure.kind == kind) return &failure;
  }
  return nullptr;
}

TEST(Verdict, AnExactOutputPasses) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const OutputCheck check = Sample(dtype).check();
    EXPECT_TRUE(check.failures.empty());
    EXPECT_EQ(check.errors.l2, 0);
    EXPECT_EQ(check.errors.row, 0);
    EXPECT_EQ(check.errors.probe, 0);
  }
}

TEST(Verdict, LimitsAreOnePercentAndForTheRouterAHundredthOfIt) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const float limit = dtype == DType::f32 ? 1e-4F : 1e-2F;
    Sample below(dtype);
    Sample above(dtype);
    below.input.probe.assign(4, 0);
    above.input.probe.assign(4, 0);
    // BF16 cannot express errors so small; move the reference instead.
    for (double& r : below.reference) r *= 1 + 0.99 * limit;
    for (double& r : above.reference) r *= 1 + 1.02 * limit;
    EXPECT_TRUE(below.check().failures.empty()) << name(dtype);
    const OutputCheck check = above.check();
    ASSERT_EQ(check.failures.size(), 1U) << name(dtype);
    EXPECT_EQ(check.failures[0].kind, FailureKind::l2_error);
    EXPECT_EQ(check.failures[0].row, 3) << "the largest element is the worst";
    EXPECT_EQ(check.failures[0].column, 7);
  }
}

TEST(Verdict, ARowMayBeOffByFiveTimesTheLimit) {
  for (const double factor : {4.9, 5.1}) {
    Sample sample(DType::f32);
    // Row 0 is small beside the others, so that the whole stays within its limit.
    for (std::int64_t i = 8; i < 32; ++i) {
      sample.reference[static_cast<std::size_t>(i)] *= 100;
      sample.set(i, static_cast<float>(sample.reference[static_cast<std::size_t>(i)]));
    }
    for (std::int64_t i = 0; i < 8; ++i) {
      sample.set(i, static_cast<float>((i + 1) * (1 + factor * 1e-4)));
    }
    const OutputCheck check = sample.check();
    EXPECT_NEAR(check.errors.row, factor * 1e-4, 1e-6);
    EXPECT_EQ(check.failures.size(), factor > 5 ? 1U : 0U) << factor;
    if (factor > 5) {
      ASSERT_NE(find(check, FailureKind::row_error), nullptr);
      EXPECT_EQ(check.failures[0].row, 0);
    }
  }
}

TEST(Verdict, EveryElementOfAProbeRowMustMatch) {
  Sample sample(DType::f32);
  sample.reference.assign(32, 1000.0);
  for (std::int64_t i = 0; i < 32; ++i) sample.set(i, 1000.0F);
  sample.set(8 + 5, 1000.9F);
  EXPECT_EQ(find(sample.check(), FailureKind::probe_error), nullptr) << "0.09 % is allowed";
  sample.set(8 + 5, 1001.1F);
  sample.set(16 + 5, 1001.1F);  // not a probe row
  const OutputCheck check = sample.check();
  const Failure* failure = find(check, FailureKind::probe_error);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->row, 1);
  EXPECT_EQ(failure->column, 5);
  EXPECT_EQ(failure->count, 1);
  EXPECT_NEAR(failure->measured, 0.0011, 1e-6);
}

TEST(Verdict, AZeroInAProbeRowMustStayZeroOrVanish) {
  Sample sample(DType::bf16);
  sample.reference[8] = 0;
  sample.set(8, -0.0F);
  EXPECT_TRUE(sample.check().failures.empty());
  sample.reference[8] = 0x1p-130;  // a subnormal weight, flushed to zero
  EXPECT_TRUE(sample.check().failures.empty());
  sample.reference[8] = 0;
  sample.set(8, 1e-20F);
  EXPECT_NE(find(sample.check(), FailureKind::probe_error), nullptr);
}

TEST(Verdict, UnwrittenElementsAreToldFromNan) {
  for (const DType dtype : {DType::bf16, DType::f32}) {
    Sample sample(dtype);
    std::memset(sample.place(10), poison_byte, static_cast<std::size_t>(2 * size_bytes(dtype)));
    sample.set(20, std::numeric_limits<float>::quiet_NaN());
    sample.set(21, -std::numeric_limits<float>::infinity());
    const OutputCheck check = sample.check();
    const Failure* unwritten = find(check, FailureKind::unwritten);
    const Failure* not_finite = find(check, FailureKind::not_finite);
    ASSERT_NE(unwritten, nullptr);
    ASSERT_NE(not_finite, nullptr);
    EXPECT_EQ(unwritten->count, 2);
    EXPECT_EQ(unwritten->row, 1);
    EXPECT_EQ(unwritten->column, 2);
    EXPECT_EQ(not_finite->count, 2);
    EXPECT_EQ(not_finite->row, 2);
    EXPECT_EQ(not_finite->column, 4);
    EXPECT_TRUE(std::isinf(check.errors.l2));
  }
}

TEST(Verdict, GuardZonesAreCheckedToTheLastByte) {
  for (const bool before : {true, false}) {
    for (const std::size_t byte : {std::size_t{0}, guard_bytes - 1}) {
      Sample sample(DType::bf16);
      const std::size_t zone = before ? 0 : sample.buffer.size() - guard_bytes;
      sample.buffer[zone + byte] = std::byte{0};
      const OutputCheck check = sample.check();
      ASSERT_EQ(check.failures.size(), 1U);
      EXPECT_EQ(check.failures[0].kind, FailureKind::guard_zone);
      EXPECT_EQ(check.failures[0].count, 1);
    }
  }
}

TEST(Verdict, SizesThatDoNotFitAreRefused) {
  Sample sample(DType::bf16);
  sample.reference.pop_back();
  EXPECT_THROW(static_cast<void>(sample.check()), Error);
  sample = Sample(DType::bf16);
  sample.buffer.pop_back();
  EXPECT_THROW(static_cast<void>(sample.check()), Error);
}

TEST(Verdict, FailuresSayWhereAndWhat) {
  Sample sample(DType::f32);
  sample.set(8 + 3, 24.0F);  // 12 expected, in the probe row
  const OutputCheck check = sample.check();
  const Failure* failure = find(check, FailureKind::probe_error);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->to_string(),
            "pooler m=4: wrong probe row at row 1, column 3: got 24, expected 12; off by 100 %, "
            "limit 0.1 %; 1 such elements");
  Failure prepare{};
  prepare.kind = FailureKind::prepare_time;
  prepare.measured = 301.24;
  prepare.limit = 300;
  EXPECT_EQ(prepare.to_string(), "prepare too long: 301.2 s, limit 300.0 s");
}

}  // namespace
}  // namespace slimgemm::judge
