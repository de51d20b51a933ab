# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Names from outside cannot steer the terminal: escape, C1, right to left. (The names are not echoed
# as typed here, or the test would show them itself.)
name=$(printf 'a\033[31m\302\233b\342\200\256c')
run verify "$name" | tail -n +2
mkdir "$name"
run fit "$name" | tail -n +2
