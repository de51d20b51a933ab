# SPDX-License-Identifier: Apache-2.0
run_showing '--layer, or --n and --k' roofline
run_showing '--n requires --k' roofline --n 8
run_showing '--(n|layer) excludes --(n|layer)' roofline --layer o --n 8 --k 8
run_showing 'eight' roofline --n eight --k 8
run_showing '--(layer|dtype-bits|gpu|svg)' roofline --help
