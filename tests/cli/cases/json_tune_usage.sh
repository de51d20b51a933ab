# SPDX-License-Identifier: Apache-2.0
export CUDA_VISIBLE_DEVICES=
run_showing 'missing\.json' tune --shapes missing.json
printf '{"schema": "slimgemm-shapes-1", "tokens": [1], "layers": []}' >none.json
run_showing 'none\.json' tune --shapes none.json
printf '{"schema": "slimgemm-shapes-1", "tokens": [1, 4], "layers": [%s, %s]}' \
  '{"name": "qkv", "n": 6144, "k": 4096, "dtype": "bf16", "role": "r", "models": ["M"]}' \
  '{"name": "gate", "n": 64, "k": 4096, "dtype": "f32", "role": "r", "models": ["M"]}' >some.json
run_showing '--encoding split12 .*' tune --shapes some.json --encoding split12
run_showing 'tuning needs a Hopper GPU' tune --shapes some.json --json t.json
ls -- *.json
