/* SPDX-License-Identifier: Apache-2.0
 * Packs an FP32 matrix, runs a layer from it on the CPU and unpacks it, through the C interface. */
#include <math.h>
#include <slimgemm/contender.h>
#include <slimgemm/slimgemm.h>
#include <stdio.h>
#include <string.h>

enum { n = 5, k = 67, m = 2 };

static int check(slimgemm_status status, const char* what) {
  if (status != SLIMGEMM_OK) {
    printf("%s: %s\n", what, slimgemm_last_error());
    return 1;
  }
  return 0;
}

/* Every x is 1 (BF16 0x3F80), so that out[i, j] is the sum of row j. */
static int run_layer(const slimgemm_packed* packed, const float* w) {
  slimgemm_linear* linear = NULL;
  uint16_t x[m * k];
  float out[m * n];
  int i, j, c;
  if (check(slimgemm_linear_create(packed, SLIMGEMM_CPU, 0, &linear), "linear_create")) return 1;
  for (i = 0; i < m * k; ++i) x[i] = 0x3F80;
  if (check(slimgemm_linear_run(linear, x, m, out, NULL, 0), "linear_run")) return 1;
  slimgemm_linear_free(linear);
  for (i = 0; i < m; ++i) {
    for (j = 0; j < n; ++j) {
      double expected = 0;
      for (c = 0; c < k; ++c) expected += w[j * k + c];
      if (!(fabs(out[i * n + j] - expected) <= 1e-4 * (1 + fabs(expected)))) {
        printf("out[%d, %d] is %g, expected %g\n", i, j, out[i * n + j], expected);
        return 1;
      }
    }
  }
  return 0;
}

int main(void) {
  float w[n * k];
  float restored[n * k];
  slimgemm_packed* packed = NULL;
  int i;
  for (i = 0; i < n * k; ++i) w[i] = (float)(i % 23) * 0.37F - 1.0F;
  if (check(slimgemm_pack(w, SLIMGEMM_F32, n, k, 1, &packed), "pack")) return 1;
  if (check(slimgemm_unpack(packed, restored, sizeof(restored), 1), "unpack")) return 1;
  if (memcmp(w, restored, sizeof(w)) != 0) {
    puts("unpack did not restore the matrix");
    return 1;
  }
  if (run_layer(packed, w) != 0) return 1;
  slimgemm_packed_free(packed);

  if (slimgemm_pack(w, SLIMGEMM_F32, -1, k, 1, &packed) != SLIMGEMM_INVALID_ARGUMENT ||
      strlen(slimgemm_last_error()) == 0) {
    puts("a matrix of -1 rows was packed, or the error has no message");
    return 1;
  }
  printf("slimgemm %s\n", slimgemm_version());
  return 0;
}
