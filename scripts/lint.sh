#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over the C++ files of the release build. Arguments are regular expressions of the
# paths to lint ("." for all); without any it is everything but tests/, which takes as long again.
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

# The compile commands of the C++ files, without those of CUDA, whose compiler options clang does
# not know, and without generated files.
lint_dir=build/lint
mkdir -p $lint_dir
count=$(python3 - $commands $lint_dir "$@" <<'PYTHON'
import json
import os
import re
import sys

commands, lint_dir, *patterns = sys.argv[1:]
patterns = patterns or ["^(?!tests/)"]


def sources(path):
    """What a file of the build compiles: itself, or what it includes to compile it at one go."""
    if not re.search(r"/Unity/unity_\d+_cxx\.cxx$", path):
        return [os.path.relpath(path)]
    return [os.path.relpath(name) for name in re.findall(r'#include "(.*)"', open(path).read())]


kept = []
linted = set()
for command in json.load(open(commands)):
    found = {name for name in sources(command["file"])
             if name.endswith(".cpp") and not name.startswith(("build", ".."))
             and any(re.search(pattern, name) for pattern in patterns)}
    if found - linted:
        linted |= found
        kept.append(command)
json.dump(kept, open(f"{lint_dir}/compile_commands.json", "w"))
print(len(linted))
PYTHON
)
[ "$count" -gt 0 ] || die "no file matches $*"

log=$lint_dir/log
if "$runner" -quiet -j "$(nproc)" -p $lint_dir >$log 2>$lint_dir/stderr; then
  say "$count files, no findings (clang-tidy $version)"
  exit 0
fi
sed 's/\x1b\[[0-9;]*m//g' $log | grep -E '(warning|error):' | sort -u || cat $lint_dir/stderr
if [ "$version" = $version_pinned ]; then
  die "clang-tidy has findings; the whole log is in $log"
fi
say "not a failure: clang-tidy $version_pinned decides, this is $version"
