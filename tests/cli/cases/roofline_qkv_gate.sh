# SPDX-License-Identifier: Apache-2.0
run roofline --n 2304 --k 8192 --m 1,8,16
run roofline --layer qkv_gate --m 16 --gpu h100
