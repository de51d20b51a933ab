#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# run_page.sh SLIMGEMM REPOSITORY PAGE.md: runs every command line ("$ ...") of the page's console
# blocks, in order, in a folder with the repository's labs/, and compares what they print with the
# page. A drawing that they write under docs/ must equal the repository's.
set -euo pipefail

SLIMGEMM=$(realpath "$1")
repository=$(realpath "$2")
page=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
cp -r "$repository/labs" .
mkdir -p docs/images

slimgemm() { "$SLIMGEMM" "$@"; }

awk '/^```console$/ {inside = 1; next} /^```$/ {inside = 0} inside' \
  "$repository/$page" >expected.txt
if ! grep -q '^\$ ' expected.txt; then
  echo "$page has no console block with a command"
  exit 1
fi
grep '^\$ ' expected.txt | while IFS= read -r line; do
  printf '%s\n' "$line"
  eval "${line#\$ }" </dev/null 2>&1 || printf 'exit %s\n' "$?"
done >actual.txt

# Blank lines are free, so that the page may group its commands as it likes.
if ! diff -u --ignore-blank-lines --label "$page" --label actual expected.txt actual.txt; then
  echo "the commands of $page print something else than the page says"
  exit 1
fi
for drawing in docs/images/*; do
  if [[ -e $drawing ]] && ! cmp "$drawing" "$repository/$drawing"; then
    echo "$drawing is not what its command draws"
    exit 1
  fi
done
