// SPDX-License-Identifier: Apache-2.0
// A shared library that is no contender.
extern "C" int slimgemm_test_unrelated() { return 0; }
