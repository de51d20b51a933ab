# SPDX-License-Identifier: Apache-2.0
run_showing 'tpu not in' judge --device tpu
run_showing '--repeats' judge --repeats 0
run_showing '--threads' judge --threads=-1
run_showing '--queue-replays' judge --queue-replays 0
run_showing '--queue-replays' judge --queue-replays all
run_showing '--queue-replays 8 needs a GPU' judge --device cpu --queue-replays 8
run_showing '--seed' judge --seed first
run_showing '--loads decode 2: .*' judge --device cpu --loads 'decode 1,decode 2'
run_showing '--layers pool: .*' judge --device cpu --layers pool
run_showing '/no/such\.so' judge --device cpu --contender /no/such.so
run_showing '/no/such\.safetensors' \
  judge --device cpu --weights /no/such.safetensors --baseline none
run_showing '--baseline sglang needs a GPU' judge --device cpu --baseline sglang
run_showing '--baseline none stands alone.*' judge --device cpu --baseline onednn,none
run_showing '--baseline sglang is given twice' judge --device cpu --baseline sglang,sglang
run_showing 'worst not in' judge --device cpu --baseline onednn,worst
run_showing '/no/such/folder/r\.md' judge --device cpu --markdown /no/such/folder/r.md
run judge --list --layers router,unpooler --loads 'decode 1,verify 1'
run_showing '^ +--[a-z-]+' judge --help
