# SPDX-License-Identifier: Apache-2.0
# The shapes that people serve, and a small file of the case's own.
run judge --shapes "$REPOSITORY/shapes/served.json" --list \
  --layers deepseek-v3.qkv_a,llama3-70b.gate_up.tp4 | sed "s|$REPOSITORY|REPOSITORY|"

cat >own.json <<'JSON'
{"schema": "slimgemm-shapes-1", "tokens": [1, 3], "layers": [
  {"name": "small", "n": 48, "k": 128, "dtype": "bf16", "role": "of a test", "models": ["none"]},
  {"name": "scores", "n": 16, "k": 64, "dtype": "f32", "tokens": [2]}]}
JSON
run judge --shapes own.json --list
run_showing '--layers tall: .*' judge --shapes own.json --layers tall --list
run_showing '--loads is for the fixed problem' judge --shapes own.json --loads 'decode 1'
run_showing '--weights is for the fixed problem' judge --shapes own.json --weights w.safetensors
run_showing '--contender \./libmine\.so: with --shapes only slimgemm.*' \
  judge --shapes own.json --contender ./libmine.so
run_showing 'cannot read none\.json' judge --shapes none.json

run_showing '^(scores|small) .* (ok|FAILED)$|^(no score|verdict).*' judge --shapes own.json \
  --device cpu --baseline none --repeats 1 --json own_report.json --html own_report.html \
  --markdown own_report.md |
  sed -E 's/ +[0-9.]+ +[0-9.]+ +[0-9]+% .*(ok|FAILED)$/ \1/; s/; [0-9]+ s/; N s/'
grep -c '"shape_file": "own.json"' own_report.json
grep -c '<svg ' own_report.html
grep '^| small | 48 | 128 | 3 |' own_report.md | cut -d '|' -f 1-5
run_showing 'the run judged the shape file own\.json.*' score own_report.json

printf '{"schema": "slimgemm-shapes-1", "layers": [{"name": "a", "n": 1e9, "k": 8}]}' >bad.json
run judge --shapes bad.json
