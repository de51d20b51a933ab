#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds one preset: scripts/build.sh <preset> [options of cmake --build]
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

preset=${1:-release}
cmake --preset "$preset"
cmake --build --preset "$preset" "${@:2}"
