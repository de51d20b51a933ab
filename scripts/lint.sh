#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy over the C++ files of the release build. Arguments are regular expressions of the
# paths to lint ("." for all); without any it is everything but tests/, which takes as long again.
# --quick, for `make test`: clang's static analyzer, which takes most of the time, only follows the
# code that reads foreign bytes; the other checks see all files, those of a unity build at one go.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version_pinned=14  # newer versions have more checks under the same names
quick=0
if [ "${1:-}" = --quick ]; then
  quick=1
  shift
fi

runner=$(command -v run-clang-tidy || true)
if ! have clang-tidy || [ -z "$runner" ]; then
  say "clang-tidy is not installed: the sources are not linted"
  exit 0
fi
version=$(clang-tidy --version | sed -n 's/.*version \([0-9]*\).*/\1/p')
commands=$build_dir/compile_commands.json
[ -e $commands ] || die "there is no $commands: run 'make build'"

# write_commands <folder> <files|unity> <patterns...>: the compile commands of the C++ files that
# match, one for each or as the build has them, without those of CUDA, whose compiler options clang
# does not know, and without generated files. Prints the number of files.
write_commands() {
  mkdir -p "$1"
  python3 - $commands "$@" <<'PYTHON'
import json
import os
import re
import sys

commands, folder, how, *patterns = sys.argv[1:]
patterns = patterns or ["^(?!tests/)"]


def sources(path):
    """What a file of the build compiles: itself, or what it includes to compile it at one go."""
    if not re.search(r"/Unity/unity_\d+_cxx\.cxx$", path):
        return [path]
    return re.findall(r'#include "(.*)"', open(path).read())


def is_wanted(path):
    name = os.path.relpath(path)
    return (name.endswith(".cpp") and not name.startswith(("build", ".."))
            and any(re.search(pattern, name) for pattern in patterns))


kept = []
linted = set()
for command in json.load(open(commands)):
    found = {path for path in sources(command["file"]) if is_wanted(path)} - linted
    linted |= found
    if how == "files":
        kept += [dict(command, file=path, command=command["command"].replace(command["file"], path))
                 for path in sorted(found)]
    elif found:
        kept.append(command)
json.dump(kept, open(f"{folder}/compile_commands.json", "w"))
print(len(linted))
PYTHON
}

# tidy <folder> [checks]
tidy() {
  local log=$1/log
  if "$runner" -quiet -j "$(nproc)" -p "$1" ${2:+-checks="$2"} >"$log" 2>"$1/stderr"; then
    return
  fi
  sed 's/\x1b\[[0-9;]*m//g' "$log" | grep -E '(warning|error):' | sort -u || cat "$1/stderr"
  if [ "$version" = $version_pinned ]; then
    die "clang-tidy has findings; the whole log is in $log"
  fi
  say "not a failure: clang-tidy $version_pinned decides, this is $version"
}

if [ $quick = 0 ]; then
  count=$(write_commands build/lint files "$@")
  [ "$count" -gt 0 ] || die "no file matches $*"
  tidy build/lint
  count="$count files"
else
  count=$(write_commands build/lint unity)
  tidy build/lint '-clang-analyzer-*'
  analyzed=$(write_commands build/lint-analyzer files \
    '^src/(checkpoint|codec|format|linear|support)/')
  tidy build/lint-analyzer '-*,clang-analyzer-*'
  count="$count files, $analyzed of them with the analyzer"
fi
say "$count: linted (clang-tidy $version)"
