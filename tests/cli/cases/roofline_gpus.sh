# SPDX-License-Identifier: Apache-2.0
run roofline --n 4096 --k 4096 --m 64 --gpu custom --bandwidth 2 --flops 312
run roofline --n 4096 --k 4096 --m 64 --gpu h200 --bandwidth 4.5
run roofline --n 100 --k 100 --m 100000
