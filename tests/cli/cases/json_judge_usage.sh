# SPDX-License-Identifier: Apache-2.0
run_showing '/no/such/folder/r\.json' judge --device cpu --json /no/such/folder/r.json
run_showing '/no/such/folder/r\.html' judge --device cpu --html /no/such/folder/r.html
