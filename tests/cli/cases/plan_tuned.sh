# SPDX-License-Identifier: Apache-2.0
# The instance that the cost model likes least stands in the table: the choice is the table's.
"$SLIMGEMM" plan --n 2304 --k 8192 --m 16 --model --all >all.txt
worst=$(grep ' us  ' all.txt | grep -o 'stream/[^ ]*' | tail -n 1)
columns=sms,encoding,n,k,m,measured_us,instance
printf '# a table\n%s\n# some GPU\n132,split12,2304,8192,16,9.25,%s\n' $columns "$worst" >tuned.csv

# Shows which of the three instances is planned, and the beginning of the reason.
plan() {
  run plan --n 2304 --k 8192 "$@" | sed -E "s|$worst|WORST|; s|: [0-9]+ x [0-9]+ CTAs.*memory||;
    s|(stream\|tile)/[^;]*|OTHER|; s|estimated [0-9.]+|estimated N|; s|: [0-9]+ CTAs.*||"
}
plan --m 8,9,16,17 --table tuned.csv
plan --m 16 --sms 114 --table tuned.csv
plan --m 16 --model

sed 's/9.25/fast/; s/# some GPU/&\n132,split12,64,64,1,1,slow/' tuned.csv >bad.csv
run plan --layer o --table bad.csv
run plan --layer o --table missing.csv
run_showing '--model' plan --layer o --table tuned.csv --model
