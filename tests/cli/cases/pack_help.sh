# SPDX-License-Identifier: Apache-2.0
# Whoever asks for help learns what the command does and what it needs.
run_showing 'Pack the BF16 weights|OUT.partial|--(include|exclude|fp16|fp32|no-verify) ' pack --help
run_showing 'Give back the original of a packed checkpoint' unpack --help
run_showing 'Check every byte of a packed checkpoint|--against' verify --help
