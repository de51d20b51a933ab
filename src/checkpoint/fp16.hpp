// SPDX-License-Identifier: Apache-2.0
// FP16 numbers that are BF16 numbers. FP16 has 10 bits of mantissa and 5 of exponent, BF16 7 and 8:
// an FP16 number is a BF16 number where its significant bits fit 8, as all are that were BF16
// before. Then the two convert into each other bit for bit.
#pragma once

#include <cstdint>
#include <span>

namespace slimgemm::checkpoint {

/// Turns FP16 into BF16 in place; false, and the values are undefined, if some value is not BF16.
bool fp16_to_bf16(std::span<std::uint16_t> values);

/// The way back; false, and the values are undefined, if some value is not FP16.
bool bf16_to_fp16(std::span<std::uint16_t> values);

}  // namespace slimgemm::checkpoint
