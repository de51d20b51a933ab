#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Entropy of exponent and mantissa of a model's FP32 matrices, rounded to FP16. Needs numpy.

    labs/fp16_entropy.py model.safetensors

Counts the matrices [N, K] of linear layers: names that end in .weight, without "embed". Prints the
entropies in bits, the bits a weight with sign, and the share of weights that are BF16 values.
"""
import json
import sys

import numpy


def entropy(counts: numpy.ndarray) -> float:
    shares = counts[counts > 0] / counts.sum()
    return float(-(shares * numpy.log2(shares)).sum())


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    data = numpy.memmap(sys.argv[1], dtype=numpy.uint8, mode="r")
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    header = json.loads(data[8:begin].tobytes())
    exponents = numpy.zeros(32, dtype=numpy.int64)
    mantissas = numpy.zeros(1024, dtype=numpy.int64)
    bf16 = 0
    for name, tensor in header.items():
        linear = name.endswith(".weight") and "embed" not in name.lower()
        if not linear or tensor["dtype"] != "F32" or len(tensor["shape"]) != 2:
            continue
        first, end = (begin + offset for offset in tensor["data_offsets"])
        weights = numpy.frombuffer(data[first:end].tobytes(), dtype=numpy.float32)
        rounded = weights.astype(numpy.float16)
        bits = rounded.view(numpy.uint16)
        exponents += numpy.bincount(bits >> 10 & 31, minlength=32)
        mantissas += numpy.bincount(bits & 1023, minlength=1024)
        bf16 += int((rounded.astype(numpy.float32).view(numpy.uint32) & 0xFFFF == 0).sum())
    total = int(exponents.sum())
    if total == 0:
        print(f"{sys.argv[1]} has no FP32 matrices of linear layers", file=sys.stderr)
        return 1
    e, m = entropy(exponents), entropy(mantissas)
    print(f"{total} weights, rounded to FP16")
    print(f"exponent {e:.2f} bits, mantissa {m:.2f} bits, with sign {1 + e + m:.2f} bits a weight")
    print(f"{100 * bf16 / total:.1f} % are BF16 values")
    return 0


if __name__ == "__main__":
    sys.exit(main())
