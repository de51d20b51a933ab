# SPDX-License-Identifier: Apache-2.0
run roofline --layer unpooler --dtype-bits 12
run roofline --layer router --m 1,256
run roofline --n 256 --k 8192 --dtype-bits 32 --m 1,256
run roofline --n 4096 --k 8192 --dtype-bits 11.3 --out-bits 32 --m 1
