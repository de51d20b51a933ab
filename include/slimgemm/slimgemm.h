/* SPDX-License-Identifier: Apache-2.0
 * C interface of SlimGEMM: pack, unpack, and linear layers on packed weights.
 * Every function that can fail returns a slimgemm_status; slimgemm_last_error() then says what was
 * wrong, for the calling thread. */
#ifndef SLIMGEMM_SLIMGEMM_H_
#define SLIMGEMM_SLIMGEMM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values of slimgemm::ErrorCode. */
typedef enum slimgemm_status {
  SLIMGEMM_OK = 0,
  SLIMGEMM_INVALID_ARGUMENT = 1,
  SLIMGEMM_CORRUPT_DATA = 2,
  SLIMGEMM_UNSUPPORTED = 3,
  SLIMGEMM_OUT_OF_MEMORY = 4,
  SLIMGEMM_DEVICE_ERROR = 5,
  SLIMGEMM_IO_ERROR = 6
} slimgemm_status;

/* The values of slimgemm::DType and slimgemm::Device. */
typedef enum slimgemm_dtype { SLIMGEMM_BF16 = 1, SLIMGEMM_F32 = 2 } slimgemm_dtype;
typedef enum slimgemm_device { SLIMGEMM_CPU = 1, SLIMGEMM_CUDA = 2 } slimgemm_device;

typedef struct slimgemm_packed slimgemm_packed; /* a packed matrix */
typedef struct slimgemm_linear slimgemm_linear; /* a layer that runs from packed weights */

/* The message of the last failed call of this thread; "" if there was none. */
const char* slimgemm_last_error(void);

/* "0.1.0" */
const char* slimgemm_version(void);

/* Packs a row-major n x k host matrix (BF16 as raw bits). threads 0: all hardware threads. */
slimgemm_status slimgemm_pack(const void* w, slimgemm_dtype dtype, int64_t n, int64_t k,
                              int threads, slimgemm_packed** packed);
/* Checks and copies packed bytes, e.g. read from a file. */
slimgemm_status slimgemm_packed_from_bytes(const void* bytes, size_t size,
                                           slimgemm_packed** packed);
/* The packed bytes; they live as long as `packed`. */
slimgemm_status slimgemm_packed_bytes(const slimgemm_packed* packed, const void** bytes,
                                      size_t* size);
/* Writes the original matrix; `out_bytes` must be its exact size. */
slimgemm_status slimgemm_unpack(const slimgemm_packed* packed, void* out, size_t out_bytes,
                                int threads);
void slimgemm_packed_free(slimgemm_packed* packed);

/* Copies the weights to the device and makes all allocations. cuda_device is ignored on the CPU. */
slimgemm_status slimgemm_linear_create(const slimgemm_packed* packed, slimgemm_device device,
                                       int cuda_device, slimgemm_linear** linear);

/* Options of a layer, those of slimgemm::LinearOptions. Fill it with zeros, set struct_size to
 * sizeof(slimgemm_linear_options) and what else is wanted: zero means the default, but for
 * `device`. Later versions append fields; struct_size says which a caller was built with. */
typedef struct slimgemm_linear_options {
  size_t struct_size;
  int32_t device;              /* a slimgemm_device */
  int32_t cuda_device;         /* CUDA device ordinal; ignored on the CPU */
  int32_t cpu_threads;         /* worker threads of the CPU backend; 0: all hardware threads */
  int32_t programmatic_launch; /* 1: run as a programmatic dependent launch; ignored on the CPU */
  int32_t batch_invariant;     /* 1: a row of out has the same bits whatever m is */
} slimgemm_linear_options;

/* slimgemm_linear_create with options. */
slimgemm_status slimgemm_linear_create_with(const slimgemm_packed* packed,
                                            const slimgemm_linear_options* options,
                                            slimgemm_linear** linear);
/* out[m, n] = x[m, k] @ W.T on `stream` (a cudaStream_t, or NULL). x_row_stride in elements, 0: k.
 * Capturable; allocates nothing and synchronises with nothing. */
slimgemm_status slimgemm_linear_run(const slimgemm_linear* linear, const uint16_t* x, int64_t m,
                                    void* out, void* stream, int64_t x_row_stride);
void slimgemm_linear_free(slimgemm_linear* linear);

#ifdef __cplusplus
}
#endif

#endif
