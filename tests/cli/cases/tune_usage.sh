# SPDX-License-Identifier: Apache-2.0
export CUDA_VISIBLE_DEVICES=  # what passes all checks must stop before it measures
run_showing '^ +--(layer|n|k|shapes|m|encoding|replays|exceptions|json|table)\b' tune --help
run_showing '--bogus' tune --bogus
run_showing '--layer is pool: .*' tune --layer pool
run_showing '--layer, --n with --k, .*' tune --layer o --n 64
run_showing '--layer, --n with --k, .*' tune --k 64 --shapes s.json
run_showing '--k is 0: .*' tune --n 64
run_showing '--n is 2147483648: .*' tune --n 2147483648 --k 64
run_showing '--encoding is packed: .*' tune --layer o --encoding packed
run_showing '--encoding raw16 .*' tune --encoding raw16
run_showing '--m has 0: .*' tune --layer o --m 1,0
run_showing '--replays' tune --layer o --replays 0
run_showing '--json no/t.json: .*' tune --json no/t.json
run_showing '--table no/t.csv: .*' tune --table no/t.csv
run_showing '--table with --exceptions: .*' tune --table t.csv --exceptions 0
printf 'sms\n' >bad.csv
run_showing 'bad\.csv line 1: .*' tune --table bad.csv
run_showing 'tuning needs a Hopper GPU' tune --layer o --m 1 --table t.csv
ls -- *.csv
