# SPDX-License-Identifier: Apache-2.0
# A model directory packed, verified and unpacked; then what verify says about damage, and refusals.
weights() { head -c "$1" /dev/zero | tr '\0' '<'; }
# tensors FILE HEADER BYTES: a safetensors file; the header has fewer than 256 bytes.
tensors() {
  printf "\\x$(printf %02x ${#2})\\0\\0\\0\\0\\0\\0\\0%s" "$2" >"$1"
  weights "$3" >>"$1"
}
timeless() { sed -E 's/ in [0-9.]+ s \([0-9.]+ [A-Za-z]+\/s\)/ in N s/g'; }

mkdir model
q='"q.weight":{"dtype":"BF16","shape":[64,192],"data_offsets":[0,24576]}'
norm='"norm.weight":{"dtype":"BF16","shape":[64],"data_offsets":[24576,24704]}'
tensors model/a.safetensors "{$q,$norm}" 24704
echo '{"hidden_size": 64}' >model/config.json
echo 'vocabulary' >model/vocab.txt
run pack model packed --quiet | timeless
ls packed
run verify packed --against model --quiet | timeless
run unpack packed back --quiet | timeless
diff -r model back && echo 'the same files'

printf x >>packed/vocab.txt
rm packed/config.json
printf '\xff' | dd of=packed/a.safetensors bs=1 seek=6000 conv=notrunc status=none
run verify packed --quiet | timeless | sed -E 's/[0-9a-f]{16}/DIGITS/g'
run unpack packed other --quiet
ls -d other* 2>/dev/null || echo 'nothing was written under the final name'

run pack model/a.safetensors a.packed --exclude 'q.*' --quiet
run pack model/a.safetensors model/vocab.txt --quiet
run pack model model/packed --quiet
run pack packed again --quiet
run verify model --quiet
run pack none out --quiet
