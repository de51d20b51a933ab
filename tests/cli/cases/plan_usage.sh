# SPDX-License-Identifier: Apache-2.0
run_showing '^ +--(layer|n|k|m|encoding)\b' plan --help
run_showing '--bogus' plan --bogus
run_showing '--n is 0: it must be 1 to 2147483647' plan
run_showing '--k is 0: it must be 1 to 2147483647' plan --n 8 --k 0
run_showing '--m has 0: it must be 1 to 2147483647' plan --layer o --m 1,0
run_showing '--layer is pool: .*' plan --layer pool
run_showing '--encoding is packed: .*' plan --layer o --encoding packed
run_showing '--sms' plan --layer o --sms 0
