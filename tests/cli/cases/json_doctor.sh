# SPDX-License-Identifier: Apache-2.0
unset SLIMGEMM_CPU_TARGET
run_showing '"(schema|cpu_works|json)": .*' doctor --json | sed "/^exit/d"
