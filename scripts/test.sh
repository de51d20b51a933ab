#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make test: everything that `make judge` does, then all checks and all tests. Ends with ctest's
# closing line.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

headers() { cmake --build --preset release --target all_verify_interface_header_sets; }
sanitizers() {
  scripts/build.sh asan
  ctest --preset asan -j "$(nproc)"
}
tests() { ctest --preset release -j "$(nproc)"; }

started=$SECONDS
step "Setup for the tests" scripts/setup.sh test
step "Formatting" scripts/format.sh --check
scripts/judge.sh
step "Build everything" scripts/build.sh release
step "Public headers are self-contained" headers
step "Lint" scripts/lint.sh
step "Tests with AddressSanitizer and UndefinedBehaviorSanitizer" sanitizers
step "Fuzz" scripts/fuzz.sh
printf '\nChecks passed in %d s; the tests are next\n' $((SECONDS - started))
step "Tests" tests
