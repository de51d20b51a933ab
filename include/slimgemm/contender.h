/* SPDX-License-Identifier: Apache-2.0
 * The judge's interface to an outside contender: a shared library that exports one function,
 *
 *     const slimgemm_contender* slimgemm_contender_get(void);
 *
 * `slimgemm judge --contender ./libmine.so` loads it. examples/contender is a worked example; the
 * rules of the run (docs/judging.md) in short: prepare() runs once, untimed, at most 300 s, and may
 * repack the weights losslessly. run() is recorded once into a CUDA graph and replayed on changing
 * x: no host synchronisation, no allocation, no branch on data, nothing derived from x kept. On the
 * CPU it is simply called. Functions return 0 for success; on failure they write a message. */
#ifndef SLIMGEMM_CONTENDER_H_
#define SLIMGEMM_CONTENDER_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SLIMGEMM_CONTENDER_ABI 1

/* Layers, in the order of the matrices given to prepare(). */
typedef enum slimgemm_layer {
  SLIMGEMM_QKV_GATE = 0,
  SLIMGEMM_O = 1,
  SLIMGEMM_POOLER = 2,
  SLIMGEMM_UNPOOLER = 3, /* at m <= 8 only rows 0..1023 of W are computed: out is m x 1024 */
  SLIMGEMM_ROUTER = 4
} slimgemm_layer;

/* One row-major n x k weight matrix. dtype: 1 BF16 (raw 16-bit words), 2 FP32. */
typedef struct slimgemm_contender_matrix {
  int64_t n;
  int64_t k;
  int32_t dtype;
  const void* host;   /* host memory, always given */
  const void* device; /* the same in device memory; NULL on the CPU */
} slimgemm_contender_matrix;

typedef struct slimgemm_contender {
  int32_t abi; /* SLIMGEMM_CONTENDER_ABI */
  const char* name;
  /* matrices: five, valid during the call only. cuda_device: ordinal, -1 on the CPU. */
  int (*prepare)(const slimgemm_contender_matrix* matrices, int32_t cuda_device, void** state,
                 char* message, size_t message_size);
  /* x: m x k BF16, contiguous; out: m x n of the layer's dtype, contiguous, every element to be
   * written; both on the device. stream: a cudaStream_t, NULL on the CPU. */
  int (*run)(void* state, int32_t layer, const void* x, int64_t m, void* out, void* stream,
             char* message, size_t message_size);
  /* Weight bytes that run() must read for this layer and m; the judge measures the time of a plain
   * streaming read of so many bytes as the ceiling. May be NULL: the dense bytes are assumed. */
  int64_t (*weight_bytes)(void* state, int32_t layer, int64_t m);
  void (*destroy)(void* state);
} slimgemm_contender;

const slimgemm_contender* slimgemm_contender_get(void);

#ifdef __cplusplus
}
#endif

#endif
