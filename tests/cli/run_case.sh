#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_case.sh SLIMGEMM REPOSITORY CASE.sh [--update]: runs one case in an empty folder and compares
# what it shows with CASE.expected; with --update, writes that file instead.
set -euo pipefail

SLIMGEMM=$(realpath "$1")
# shellcheck disable=SC2034  # for the cases
REPOSITORY=$(realpath "$2")
case_file=$(realpath "$3")
expected=${case_file%.sh}.expected
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# run ARGUMENT...: the command as typed, its output, each line of its stderr marked, its exit code.
run() {
  printf '$ slimgemm %s\n' "$*"
  local code=0
  "$SLIMGEMM" "$@" 2>stderr.txt || code=$?
  sed 's/^/stderr: /' stderr.txt
  printf 'exit %s\n' "$code"
}

# run_showing PATTERN ARGUMENT...: as run, but shows only what matches the extended regular
# expression, for messages whose other words differ between versions of the option parser.
run_showing() {
  local pattern=$1
  shift
  run "$@" >shown.txt
  head -n 1 shown.txt
  sed '1d;$d' shown.txt | grep -Eo -- "$pattern" || printf 'nothing matches %s\n' "$pattern"
  tail -n 1 shown.txt
}

# shellcheck source=/dev/null
actual=$(source "$case_file")
if [[ ${4:-} == --update ]]; then
  printf '%s\n' "$actual" >"$expected"
elif ! diff -u --label expected --label actual "$expected" <(printf '%s\n' "$actual"); then
  echo "$case_file shows something else than $expected"
  exit 1
fi
