# SPDX-License-Identifier: Apache-2.0
cp "$REPOSITORY/labs/published.csv" .
run_showing '^.*(#|above the floor)$' score published.csv --weight-bits 12
run score published.csv --weight-bits 0
run_showing 'lots' score published.csv --weight-bits lots
