# SPDX-License-Identifier: Apache-2.0
# What docs/inspecting.md shows.
# shellcheck source=tests/cli/checkpoint.sh
source "$REPOSITORY/tests/cli/checkpoint.sh"
write_llama3_70b llama-3-70b
run fit llama-3-70b --gpu h200 --context 8192 --batch 8
