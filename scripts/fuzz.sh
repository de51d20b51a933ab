#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the libFuzzer targets with clang and runs each for a short while.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if ! can_fuzz; then
  say "clang++ or its fuzzer runtime is not installed: nothing is fuzzed"
  exit 0
fi
cmake --preset fuzz
cmake --build --preset fuzz --target fuzzers
ctest --preset fuzz -j "$(nproc)"
