# SPDX-License-Identifier: Apache-2.0
# A report of the judge, cut down to what the score reads.
shape() {
  printf '{"layer": "%s", "m": %s, "scored": %s, ' "$1" "$2" "$3"
  printf '"contender": {"median_us": %s}, "baseline": {"median_us": %s}}' "$4" "$5"
}
report() {
  printf '{"schema": "slimgemm-judge-1", "device": {"device": "NVIDIA H200"}, '
  printf '"contender": {"name": "slimgemm"}, "baseline": {"name": "sglang"}, '
  printf '"verdict": "%s", "score": %s, "shapes": [' "$1" "$2"
  printf '%s, %s, %s, %s, %s, %s]}\n' "$(shape qkv_gate 1 true 8 13)" "$(shape o 1 true 5 6)" \
    "$(shape pooler 1 true 13 20)" "$(shape unpooler 1 true 3 6)" "$(shape router 1 true 4 11)" \
    "$(shape qkv_gate 5 false null null)"
}
report passed null >passed.json
run score passed.json
report failed null >failed.json
run_showing '^The contender.*' score failed.json
report invalid null >invalid.json
run_showing '^The baseline.*' score invalid.json
report passed 1.9 >edited.json
run_showing '^The file.*' score edited.json
report passed null | sed 's/"median_us": 13}/"median_us": "fast"}/' >text.json
run score text.json
sed 's/"baseline": {"name": "sglang"}/"baseline": null/' passed.json >alone.json
run score alone.json
echo '{"schema": "other"}' >other.json
run score other.json
echo '{"schema": ' >broken.json
run_showing 'broken.json: not JSON' score broken.json
