# SPDX-License-Identifier: Apache-2.0
# What every machine has. A GPU that does not work may change the exit code of the first two.
unset SLIMGEMM_CPU_TARGET
run_showing '^  (ok +kernels that run here: scalar|ok +tried scalar: .*)|^Layers and.*' doctor |
  sed '/^exit/d'
export SLIMGEMM_CPU_TARGET=scalar
run_showing 'layers run scalar, as SLIMGEMM_CPU_TARGET asks' doctor | sed '/^exit/d'
export SLIMGEMM_CPU_TARGET=mmx
run_showing '^  problem .*mmx: no such target|-> unset SLIMGEMM_CPU|^(Layers and|There).*' doctor
unset SLIMGEMM_CPU_TARGET
run_showing '--json|-> *\) *says what|Exit codes: .*' doctor --help
run_showing '--bogus' doctor --bogus
