#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Packs, verifies and unpacks checkpoints and prints speeds, memory and bits a weight as markdown:
# checkpoint_figures.sh FOLDER [REAL_MODEL]. FOLDER is on the disk to measure, with 14 GB free; what
# is made there stays. REAL_MODEL is a directory with BF16 weights. Needs GNU time and numpy.
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ $# -ge 1 ] || die "usage: scripts/checkpoint_figures.sh FOLDER [REAL_MODEL]"
folder=$(realpath "$1")
slimgemm=$PWD/$build_dir/tools/slimgemm/slimgemm
codec=$PWD/$build_dir/benchmarks/codec_benchmark
[ -x "$slimgemm" ] && [ -x "$codec" ] || die "run 'make build' first"
model=$folder/synthetic
mkdir -p "$folder"
[ -e "$model" ] || python3 scripts/make_checkpoint.py synthetic "$model"

# cold FOLDER: its files leave the system's cache.
cold() {
  sync
  find "$1" -type f -exec dd if={} iflag=nocache count=0 status=none \;
}
# measure WHAT COMMAND...: a row of the table, from GNU time and the command's own last line.
measure() {
  local what=$1 log=$folder/log
  shift
  /usr/bin/time -f '%e %U %S %M' -o "$folder/time" "$@" --quiet >"$log"
  read -r wall user system peak <"$folder/time"
  printf '| %s | %s | %.0f | %s | %s | %.0f |\n' "$what" "$wall" \
    "$(echo "$bytes / $wall / 1000000" | bc -l)" "$user" "$system" \
    "$(echo "$peak * 1024 / 1000000" | bc -l)"
}
# disk_alone IN OUT: seconds that the disk takes to read the files of IN and to write as much as OUT
# has, at the same time, past the cache: what packing IN into OUT can't beat.
disk_alone() {
  local file=$folder/disk start size
  size=$(find "$2" -type f -printf '%s\n' | awk '{sum += $1} END {printf "%d", sum / 8388608}')
  rm -f "$file"
  sync
  start=$(date +%s.%N)
  dd if=/dev/zero of="$file" bs=8M count="$size" oflag=direct conv=fsync status=none &
  find -L "$1" -name '*.safetensors' -exec dd if={} of=/dev/null bs=8M iflag=direct status=none \;
  wait
  echo "$(date +%s.%N) - $start" | bc -l
  rm -f "$file"
}
# table MODEL: all commands on one model.
table() {
  local packed=$1.packed back=$1.back
  rm -rf "$packed" "$packed.partial" "$back" "$back.partial"
  bytes=$(find -L "$1" -type f -printf '%s\n' | awk '{sum += $1} END {printf "%.0f", sum}')
  printf '\n| command | s | MB/s | user s | system s | peak RSS MB |\n|---|---|---|---|---|---|\n'
  cold "$1"
  measure 'pack --no-verify, not cached' "$slimgemm" pack "$1" "$packed" --no-verify
  cp "$folder/log" "$folder/summary"
  rm -rf "$packed"
  measure 'pack --no-verify, cached' "$slimgemm" pack "$1" "$packed" --no-verify
  cold "$packed"
  measure 'verify, not cached' "$slimgemm" verify "$packed"
  measure 'verify, cached' "$slimgemm" verify "$packed"
  measure 'verify --against' "$slimgemm" verify "$packed" --against "$1"
  cold "$packed"
  measure 'unpack, not cached' "$slimgemm" unpack "$packed" "$back"
  (cd "$1" && find -L . -type f -exec sha256sum {} + | sort) >"$folder/before"
  (cd "$back" && find . -type f -exec sha256sum {} + | sort) >"$folder/after"
  cmp "$folder/before" "$folder/after" || die "$back differs from $1"
  printf '\nThe disk alone, reading and writing what pack does: %.2f and %.2f s.\n' \
    "$(disk_alone "$1" "$packed")" "$(disk_alone "$1" "$packed")"
  printf '\nSHA-256 of all %d files before and after: the same.\n\n' "$(wc -l <"$folder/before")"
  grep -v '^packed' "$folder/summary" | sed 's/^/    /'
}
# disk read|write: MB/s past the cache, the better of two.
disk() {
  local direction=$1 file=$folder/disk
  for _ in 1 2; do
    case $direction in
      write) dd if=/dev/zero of="$file" bs=8M count=200 oflag=direct 2>&1 ;;
      read) dd if="$file" of=/dev/null bs=8M iflag=direct 2>&1 ;;
    esac | awk '/copied/ {for (i = 1; i <= NF; ++i) if ($(i + 1) == "s,") print 1677.72 / $i}'
  done | sort -n | tail -1
}

printf '%s, %d cores; load before: %s\n\n' \
  "$(sed -n 's/^model name\s*: //p' /proc/cpuinfo | head -1)" "$(nproc)" \
  "$(cut -d ' ' -f 1 /proc/loadavg)"
printf 'Disk past the cache: write %.0f MB/s, ' "$(disk write)"
printf 'read %.0f MB/s.\n' "$(disk read)"
rm -f "$folder/disk"
printf 'Codec (codec_benchmark, all threads): '
"$codec" --benchmark_filter='^(pack|unpack)_split12/threads:0|from_bytes_split12' \
  --benchmark_min_time=1 --benchmark_format=csv 2>/dev/null |
  awk -F, '/split12/ {gsub("\"", "", $1); split($1, name, "/");
                      printf "%s%s %.0f MB/s", sep, name[1], $6 / 1e6; sep = ", "}'
printf '.\n\n## Synthetic, four shards\n'
table "$model"
if [ $# -ge 2 ]; then
  printf '\n## %s\n' "$(basename "$2")"
  table "$(realpath "$2")"
fi
