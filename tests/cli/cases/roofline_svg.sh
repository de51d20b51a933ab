# SPDX-License-Identifier: Apache-2.0
run roofline --layer o --m 16,1024 --svg o.svg
grep -E '^<(text|circle)' o.svg
run roofline --layer o --m 16 --svg no/such/folder/o.svg
