# SPDX-License-Identifier: Apache-2.0
# shellcheck source=tests/cli/checkpoint.sh
source "$REPOSITORY/tests/cli/checkpoint.sh"
write_model model
run inspect none
run inspect model --tensor q_proj
run inspect model --html no/page.html
mkdir empty
run inspect empty
bytes 100 0 | write_safetensors short.safetensors \
  '{"a.weight": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]}}'
run inspect short.safetensors
printf '{"weight_map": {"a.weight": "gone.safetensors"}}' >empty/model.safetensors.index.json
run inspect empty
run_showing '--gpu' inspect model --gpu b200
run_showing 'model is required' inspect
run_showing '^ +--(tensor|gpu|json|html)\b' inspect --help
