# SPDX-License-Identifier: Apache-2.0
run_showing 'subcommand is required'
run_showing 'subcommand is required' bogus
run_showing '[^ ]+ is required' --bogus
run_showing '--bogus' score x.csv --bogus
