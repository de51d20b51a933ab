#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# make judge: installs what is missing, builds, and judges all 39 shapes on the GPU if there is one,
# otherwise on the CPU. Arguments go to `slimgemm judge`.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

judge() {
  local reports=(--json build/judge.json --html build/judge.html)
  if ! grep -q '^JSON and HTML reports: ON' $build_dir/parts.txt; then
    reports=()
    say "No reports are written: $(grep '^JSON and HTML reports' $build_dir/parts.txt)"
  fi
  $build_dir/tools/slimgemm/slimgemm judge --device auto "${reports[@]}" "$@"
}

step "Setup" scripts/setup.sh judge
step "Build" scripts/build.sh release --target slimgemm_cli
step "Judge" judge "$@"
