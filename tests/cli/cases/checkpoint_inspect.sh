# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/checkpoint.sh
source "$REPOSITORY/tests/cli/checkpoint.sh"
write_model model
run inspect model
run inspect model --tensor model.layers.1.q_proj.weight
run_showing '"(packed_bytes|exponent_entropy_bits|exceptions|us_before)": .*' inspect model --json
run inspect model --html page.html | tail -n 1
grep -c '<svg ' page.html
grep -o '"schema": .*' page.html
