# SPDX-License-Identifier: Apache-2.0
# For cases: safetensors files without a program to make them.

# bytes COUNT OCTAL: so many bytes of one value. As BF16: 77 is 0x3F3F, 2^-1 and a bit; 75 is 2^-5
# and a bit; 74 is 2^-7 and a bit; 0 is zero.
bytes() { head -c "$1" /dev/zero | tr '\0' "\\$2"; }

# write_safetensors FILE HEADER: the header's JSON, then stdin as the tensors' bytes.
write_safetensors() {
  local length=${#2} i
  {
    for i in 0 1 2 3 4 5 6 7; do
      # shellcheck disable=SC2059  # an escape that is computed
      printf "\\x$(printf '%02x' $((length >> (8 * i) & 255)))"
    done
    printf '%s' "$2"
    cat
  } >"$1"
}

# A model of two layers: a 64 x 64 matrix of three exponents (1/2, 1/4, 1/4), one of a single
# exponent with 3 zeros, an embedding, a norm.
write_model() {
  mkdir -p "$1"
  {
    bytes 4096 77
    bytes 2048 75
    bytes 2048 74
    bytes 6 0
    bytes 8186 75
    bytes 8192 77
    bytes 128 77
  } | write_safetensors "$1/model.safetensors" '{
    "model.layers.0.q_proj.weight": {"dtype": "BF16", "shape": [64, 64], "data_offsets": [0, 8192]},
    "model.layers.1.q_proj.weight": {"dtype": "BF16", "shape": [64, 64],
      "data_offsets": [8192, 16384]},
    "model.embed_tokens.weight": {"dtype": "BF16", "shape": [64, 64],
      "data_offsets": [16384, 24576]},
    "model.norm.weight": {"dtype": "BF16", "shape": [64], "data_offsets": [24576, 24704]}}'
  printf '{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 2048}' >"$1/config.json"
}

# A model directory with the shapes and the config.json of Llama 3 70B, whose weights are a hole in
# the file: enough for slimgemm fit, which reads headers alone.
write_llama3_70b() {
  mkdir -p "$1"
  local header='' end=0
  add() {  # NAME ROWS [COLUMNS]
    local begin=$end shape=$2
    end=$((begin + 2 * $2 * ${3:-1}))
    [[ -z ${3:-} ]] || shape="$2, $3"
    header+=${header:+,}"\"$1\": {\"dtype\": \"BF16\", \"shape\": [$shape],"
    header+=" \"data_offsets\": [$begin, $end]}"
  }
  local layer part
  add model.embed_tokens.weight 128256 8192
  for ((layer = 0; layer < 80; ++layer)); do
    part=model.layers.$layer
    add $part.self_attn.q_proj.weight 8192 8192
    add $part.self_attn.k_proj.weight 1024 8192
    add $part.self_attn.v_proj.weight 1024 8192
    add $part.self_attn.o_proj.weight 8192 8192
    add $part.mlp.gate_proj.weight 28672 8192
    add $part.mlp.up_proj.weight 28672 8192
    add $part.mlp.down_proj.weight 8192 28672
    add $part.input_layernorm.weight 8192
    add $part.post_attention_layernorm.weight 8192
  done
  add model.norm.weight 8192
  add lm_head.weight 128256 8192
  write_safetensors "$1/model.safetensors" "{$header}" </dev/null
  truncate -s "+$end" "$1/model.safetensors"
  printf '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8192,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "tie_word_embeddings": false}' >"$1/config.json"
}
