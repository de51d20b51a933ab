#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Formats the sources with clang-format; --check only says what would change.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

version_pinned=14  # other versions format a few lines differently

if ! have clang-format; then
  say "clang-format is not installed: formatting is not checked"
  exit 0
fi
version=$(clang-format --version | sed 's/.*version \([0-9]*\).*/\1/')
mapfile -t files < <(find include src tools tests benchmarks examples bindings -regextype egrep \
                       -regex '.*\.(h|hpp|cpp|cu|cuh|c)' | sort)
if [ "${1:-}" != --check ]; then
  [ "$version" = $version_pinned ] || die "this is clang-format $version, not $version_pinned"
  clang-format -i "${files[@]}"
  exit 0
fi

mapfile -t unformatted < <(printf '%s\0' "${files[@]}" |
  xargs -0 -P "$(nproc)" -n 8 sh -c 'for file; do
    clang-format --dry-run --Werror "$file" 2>/dev/null || echo "$file"
  done' format | sort)
if [ ${#unformatted[@]} -eq 0 ]; then
  say "${#files[@]} files are formatted (clang-format $version)"
  exit 0
fi
printf 'not formatted: %s\n' "${unformatted[@]}"
if [ "$version" = $version_pinned ]; then
  die "${#unformatted[@]} of ${#files[@]} files are not formatted: run 'make format'"
fi
say "not a failure: clang-format $version_pinned decides, this is $version"
