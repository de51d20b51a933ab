#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# On a machine with a Hopper GPU: compiles the Python module against build/prebuilt
# (scripts/python_prebuilt.sh makes it), runs the tests, then measures. Needs no network, but Python
# with torch, numpy, nanobind and pytest, CMake and a C++20 compiler.
#
#   bindings/python/gpu_check.sh [test|measure|all] [folder for results] [arguments of pytest]
#
# Without arguments pytest runs the tests that need a GPU (-m gpu).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

what=${1:-all}
results=${2:-build/python-results}
[ $# -gt 2 ] && pytest_arguments=("${@:3}") || pytest_arguments=(-m gpu)
python=${PYTHON:-python3}
mkdir -p "$results"

[ -e build/prebuilt/lib/libslimgemm.so ] || {
  echo "there is no build/prebuilt: run scripts/python_prebuilt.sh where nvcc is" >&2
  exit 1
}
start=$SECONDS
cmake -S bindings/python -B build/python-gpu -DCMAKE_PREFIX_PATH="$PWD/build/prebuilt" \
  -DPython_EXECUTABLE="$(command -v "$python")" >"$results/build.txt" 2>&1 &&
  cmake --build build/python-gpu -j "$(nproc)" >>"$results/build.txt" 2>&1 || {
  tail -40 "$results/build.txt" >&2
  exit 1
}
cp -L build/prebuilt/lib/*.so.* build/python-gpu/slimgemm/
echo "built in $((SECONDS - start)) s"
export PYTHONPATH=$PWD/build/python-gpu

status=0
if [ "$what" != measure ]; then
  "$python" -m pytest -q -ra -p no:cacheprovider --durations=5 \
    "${pytest_arguments[@]}" bindings/python/tests 2>&1 |
    tee "$results/tests.txt" || status=1
fi
if [ "$what" != test ]; then
  "$python" bindings/python/benchmarks/measure.py --json "$results/packed-linear.json" 2>&1 |
    tee "$results/packed-linear.txt" || status=1
fi
exit $status
