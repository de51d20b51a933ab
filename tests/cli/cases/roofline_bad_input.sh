# SPDX-License-Identifier: Apache-2.0
run roofline --n 0 --k 8
run roofline --n 8 --k 2147483648
run roofline --n 8 --k 8 --m 1,zero
run roofline --n 8 --k 8 --dtype-bits 65
run roofline --n 8 --k 8 --out-bits=-1
run roofline --layer conv
run roofline --layer o --gpu b300
run roofline --layer o --gpu custom --flops 900
run roofline --layer o --bandwidth 0
