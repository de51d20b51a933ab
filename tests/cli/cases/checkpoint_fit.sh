# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/checkpoint.sh
source "$REPOSITORY/tests/cli/checkpoint.sh"
write_model model
run fit model
run fit model --memory 0.00003 --memory-share 1 --context 16 --batch 2
run_showing '"(weight_bytes|bytes_per_token|context_max)": .*' fit model --json --kv-bits 8
run fit model/model.safetensors
printf '{"model_type": "brandnew", "num_hidden_layers": 2}' >model/config.json
run_showing 'KV cache: unknown.*' fit model
run_showing '--memory is 0 GB.*' fit model --memory 0
run_showing '--memory-share is 2.*' fit model --memory-share 2
run_showing '--batch' fit model --batch 0
run_showing '--gpu' fit model --gpu a100
run_showing '^ +--(gpu|memory|context|batch|kv-bits|memory-share|json)\b' fit --help
