# SPDX-License-Identifier: Apache-2.0
run_showing 'slimgemm plan' plan --help
run_exit plan --bogus
