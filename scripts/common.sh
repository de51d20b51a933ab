# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder: sourced, not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build_dir=build/release

say() { printf '%s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
can_fuzz() {
  have clang++ && [ -n "$(find "$(clang++ -print-resource-dir)/lib" -name 'libclang_rt.fuzzer*' \
                          -print -quit 2>/dev/null)" ]
}

# step <title> <command...>: runs a command under a heading, says how long it took, stops at the
# first failure.
step() {
  local title=$1 start=$SECONDS
  shift
  printf '\n== %s\n' "$title"
  # A subshell that is not part of a condition, so that `set -e` holds inside the function called.
  set +e
  (set -e; "$@")
  local status=$?
  set -e
  [ $status -eq 0 ] || die "$title failed after $((SECONDS - start)) s (exit code $status)"
  printf -- '-- %s: %d s\n' "$title" $((SECONDS - start))
}

# Settings of every build: all cores, Ninja and ccache where they are installed.
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
if [ -z "${CMAKE_GENERATOR:-}" ] && have ninja; then
  export CMAKE_GENERATOR=Ninja
fi
if have ccache; then
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD}
  export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
fi
