#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make test: everything that `make judge` does (with fewer timed pairs), then all checks and all
# tests. Ends with a line that counts the tests of the release build.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

headers() { cmake --build --preset release --target all_verify_interface_header_sets; }
# With clang, one build serves the sanitizers and the fuzz targets.
sanitizers() {
  local build=asan tests=asan
  if can_fuzz; then
    build=fuzz tests=clang-asan
  fi
  scripts/build.sh $build
  ctest --preset $tests -j "$(nproc)"
}
tests() { ctest --preset release -j "$(nproc)" --output-junit tests.xml; }

# count <attribute>: of the first element of ctest's report.
count() { grep -m 1 -oE "^\s+$1=\"[0-9]+" $build_dir/tests.xml | grep -oE '[0-9]+'; }

started=$SECONDS
step "Setup for the tests" scripts/setup.sh test
step "Python packages for the tests" scripts/python_packages.sh
step "Formatting" scripts/format.sh --check
scripts/judge.sh --repeats 5
step "Build everything" scripts/build.sh release
step "Public headers are self-contained" headers
step "Lint" scripts/lint.sh --quick
step "Tests with AddressSanitizer and UndefinedBehaviorSanitizer" sanitizers
step "Fuzz" scripts/fuzz.sh
step "Tests" tests
printf '\nEverything passed in %d s\n' $((SECONDS - started))
printf '%d passed, %d failed, %d skipped\n' \
  $(($(count tests) - $(count failures) - $(count skipped))) "$(count failures)" "$(count skipped)"
