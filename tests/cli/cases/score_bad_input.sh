# SPDX-License-Identifier: Apache-2.0
printf 'load,baseline_us,ours_us\ndecode 1,59.49,38.25\ndecode 2,59.49,38.25\n' >load.csv
run score load.csv
printf 'load,layer,baseline_us,ours_us\ndecode 1,pool,59.49,38.25\n' >layer.csv
run score layer.csv
printf '# a note\nload,baseline_us,ours_us\ndecode 1,59.49,fast\n' >time.csv
run score time.csv
printf 'decode 1,59.49,38.25\n' >header.csv
run score header.csv
: >empty.csv
run score empty.csv
run score missing.csv
