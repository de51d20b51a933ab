# SPDX-License-Identifier: Apache-2.0
run_showing 'times is required' score
run_showing '--bogus' score --bogus x.csv
run_showing '--weight-bits' score --help
