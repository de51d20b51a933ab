#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the build lacks, from the distribution's own packages and from nowhere else.
#
#   scripts/setup.sh [judge|test]    judge: what building and judging needs (the default)
#                                    test: that, and what the checks of `make test` need
#
# Says what it does. Asks no registry when nothing is missing, or when SLIMGEMM_OFFLINE=1. A missing
# optional package costs one line; a missing required one ends with exit code 1.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

purpose=${1:-judge}
case $purpose in
  judge | test) ;;
  *) say "usage: scripts/setup.sh [judge|test]" >&2; exit 2 ;;
esac

cmake_version_min=3.25

# Probes: is it there, wherever it came from?
cmake_is_new_enough() {
  have cmake || return 1
  local version
  version=$(cmake --version | sed -n '1s/.*version //p')
  printf '%s\n%s\n' "$cmake_version_min" "$version" | sort -V -C
}
installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
header() { [ -e "/usr/include/$1" ] || [ -e "/usr/local/include/$1" ]; }
python_headers() {
  python3 -c 'import os, sysconfig
exit(not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")))' 2>/dev/null
}

# What is missing, filled by need().
missing_required=()
missing_optional=()

# need <required|optional> <package> <what for> <probe command...>
need() {
  local kind=$1 package=$2 what_for=$3
  shift 3
  if "$@" || installed "$package"; then
    return
  fi
  say "setup: missing $package ($what_for; $kind)"
  if [ "$kind" = required ]; then
    missing_required+=("$package")
  else
    missing_optional+=("$package")
  fi
}

collect() {
  missing_required=()
  missing_optional=()
  need required g++ "C++20 compiler" have "${CXX:-c++}"
  need required cmake "build system, $cmake_version_min or newer" cmake_is_new_enough
  need required libcli11-dev "command line" header CLI/CLI.hpp
  need required libfmt-dev "text output" header fmt/format.h
  need optional ninja-build "faster builds" have ninja
  need optional pkg-config "finding libraries" have pkg-config
  need optional git "commit id in reports" have git
  need optional nlohmann-json3-dev "JSON and HTML reports" header nlohmann/json.hpp
  need optional libxxhash-dev "checksums of packed data" header xxhash.h
  need optional libhwy-dev "SIMD kernels of the CPU backend" header hwy/highway.h
  need optional libdnnl-dev "oneDNN baseline" header oneapi/dnnl/dnnl.hpp
  need optional libopenblas-dev "fast FP64 references" installed libopenblas-dev
  if [ "$purpose" = test ]; then
    need required libgtest-dev "tests" header gtest/gtest.h
    need required python3 "style test" have python3
    need optional python3-dev "Python package" python_headers
    need optional libbenchmark-dev "benchmarks" header benchmark/benchmark.h
    need optional clang-format "formatting check" have clang-format
    need optional clang-tidy "lint" have clang-tidy
    need optional clang "fuzz test" have clang++
    if have clang++; then  # the runtime's package is named after clang's version
      local version
      version=$(clang++ -dumpversion)
      need optional "libclang-rt-${version%%.*}-dev" "fuzz test" can_fuzz
    fi
  fi
}

can_install() {
  if [ "${SLIMGEMM_OFFLINE:-0}" = 1 ]; then
    say "setup: SLIMGEMM_OFFLINE=1: nothing is installed"
  elif ! have apt-get || ! have dpkg-query; then
    say "setup: no apt-get on this machine: nothing is installed"
  elif [ "$(id -u)" -ne 0 ] && ! have sudo; then
    say "setup: neither root nor sudo: nothing is installed"
  else
    return 0
  fi
  return 1
}

apt() {
  local as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y \
    -o Acquire::http::Timeout=20 -o Acquire::Retries=1 "$@" >"$apt_log" 2>&1
}

# Installs packages all at once or, where that fails, one by one.
install() {
  say "setup: apt-get install --no-install-recommends $*"
  if apt install --no-install-recommends "$@"; then
    return
  fi
  local package
  for package in "$@"; do
    apt install --no-install-recommends "$package" ||
      say "setup: cannot install $package: $(grep -m 1 '^E:' "$apt_log" || echo "apt-get failed")"
  done
}

apt_log=$(mktemp)
trap 'rm -f "$apt_log"' EXIT
tried=" "

# Twice at most: the clang runtime is known by name only once clang is there.
for pass in 1 2; do
  collect
  packages=()
  for package in "${missing_required[@]}" "${missing_optional[@]}"; do
    case $tried in *" $package "*) ;; *) packages+=("$package") ;; esac
  done
  if [ ${#packages[@]} -eq 0 ] || ! can_install; then
    break
  fi
  if [ "$pass" -eq 1 ]; then
    say "setup: apt-get update"
    apt update || say "setup: the package lists could not be refreshed; trying with those at hand"
  fi
  tried+="${packages[*]} "
  install "${packages[@]}"
done

collect >/dev/null
if [ ${#missing_required[@]} -gt 0 ]; then
  die "required and not installed: ${missing_required[*]}. Install them and run the command again."
elif [ ${#missing_optional[@]} -gt 0 ]; then
  say "setup: goes on without ${missing_optional[*]}"
else
  say "setup: everything is there"
fi
