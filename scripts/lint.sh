#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over the C++ files of the release build; with arguments, over the files that
# match one of these regular expressions.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version_pinned=14  # newer versions have more checks under the same names

runner=$(command -v run-clang-tidy || true)
if ! have clang-tidy || [ -z "$runner" ]; then
  say "clang-tidy is not installed: the sources are not linted"
  exit 0
fi
version=$(clang-tidy --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
commands=$build_dir/compile_commands.json
[ -e $commands ] || die "there is no $commands: run 'make build'"

# clang does not know nvcc's options: the compile commands without the CUDA files.
lint_dir=build/lint
mkdir -p $lint_dir
python3 - $commands $lint_dir/compile_commands.json <<'PYTHON'
import json
import sys

commands = json.load(open(sys.argv[1]))
files = {c["file"]: c for c in commands}
kept = [c for name, c in files.items() if name.endswith(".cpp") and "/build/" not in name]
json.dump(kept, open(sys.argv[2], "w"))
PYTHON

log=$lint_dir/log
if "$runner" -quiet -j "$(nproc)" -p $lint_dir "$@" >$log 2>$lint_dir/stderr; then
  say "no findings (clang-tidy $version)"
  exit 0
fi
grep -E '(warning|error):' $log || cat $log $lint_dir/stderr
if [ "$version" = $version_pinned ]; then
  die "clang-tidy has findings; the whole log is in $log"
fi
say "not a failure: clang-tidy $version_pinned decides, this is $version"
