# SPDX-License-Identifier: Apache-2.0
sed 's/38\.25/35/' "$REPOSITORY/labs/published.csv" >what_if.csv
run_showing '^(decode 1 .*#|Score.*)$' score what_if.csv
