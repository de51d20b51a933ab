# SPDX-License-Identifier: Apache-2.0
run_exit plan --help
run_exit plan --bogus
