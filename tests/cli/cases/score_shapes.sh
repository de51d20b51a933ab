# SPDX-License-Identifier: Apache-2.0
# Two loads by shapes, one of them with a shape missing, and one load as a sum.
cat >shapes.csv <<'CSV'
load, layer, baseline_us, ours_us
decode 1, qkv_gate, 13.4,  8.4
decode 1, o,         5.8,  4.6
decode 1, pooler,   20.1, 13.77
decode 1, unpooler,  6.2,  3.1
decode 1, router,   10.5,  4.2
verify 1, pooler,   19.8, 15     # the others are not known yet

load, baseline_us, ours_us
decode 16, 75.94, 54.03
CSV
run score shapes.csv
run_showing '^(shape|decode 1|Most) .*(#|floor|us.)$' score shapes.csv --weight-bits 12
