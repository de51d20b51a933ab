// SPDX-License-Identifier: Apache-2.0
// The ceiling: ways to read memory once and do nothing with it.
//
//   loads   every CTA takes one contiguous part; a thread has `unroll` 16-byte loads in flight
//   bulk    every CTA is a ring of shared-memory stages that one thread keeps filled by bulk
//   copies:
//           wait for the oldest stage, refill it, go on; chunks lie side by side or interleaved
#include "judge/cuda_kernels.hpp"

#include "cuda/check.hpp"

#include <algorithm>
#include <iterator>

namespace slimgemm::judge {
namespace {

constexpr int load_threads = 512;
constexpr int bulk_threads = 32;
constexpr int max_stages = 64;
constexpr int bulk_smem_bytes = 208 * 1024;  // of the 227 KB that a CTA may have on Hopper
constexpr std::uint32_t unlikely = 0x9E3779B9u;

struct Range {
  std::size_t begin;
  std::size_t end;
};

/// Part `index` of `parts` equal parts of [0, count).
__device__ Range part_of(std::size_t count, unsigned index, unsigned parts) {
  const std::size_t size = (count + parts - 1) / parts;
  const std::size_t begin = size * index < count ? size * index : count;
  return {begin, begin + size < count ? begin + size : count};
}

__device__ uint4 load_once(const uint4* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

template <int unroll>
__global__ void __launch_bounds__(load_threads)
    loads_kernel(const uint4* data, std::size_t vectors, std::uint32_t* sink) {
  const Range part = part_of(vectors, blockIdx.x, gridDim.x);
  std::uint32_t sum = 0;
  for (std::size_t i = part.begin + threadIdx.x; i < part.end; i += load_threads * unroll) {
    uint4 values[unroll];
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      const std::size_t at = i + static_cast<std::size_t>(u) * load_threads;
      values[u] = at < part.end ? load_once(data + at) : uint4{};
    }
#pragma unroll
    for (int u = 0; u < unroll; ++u) {
      sum += values[u].x + values[u].y + values[u].z + values[u].w;
    }
  }
  if (sum == unlikely) *sink = sum;
}

__device__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ void barrier_init(std::uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

/// Starts a copy of `bytes` (a multiple of 16, aligned to 16) that completes one phase of
/// `barrier`.
__device__ void bulk_copy(std::uint32_t to, const char* from, std::uint32_t bytes,
                          std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ void barrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n"
        "  .reg .pred complete;\n"
        "  mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n"
        "  selp.u32 %0, 1, 0, complete;\n"
        "}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

struct BulkShape {
  int chunk_bytes;
  int stages;
  bool interleaved;
};

__global__ void __launch_bounds__(bulk_threads)
    bulk_kernel(const char* data, std::size_t bytes, BulkShape shape) {
  extern __shared__ __align__(128) char stages[];
  __shared__ std::uint64_t barriers[max_stages];
  if (threadIdx.x != 0) return;
  for (int s = 0; s < shape.stages; ++s) barrier_init(shared_address(&barriers[s]));
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

  const std::size_t chunk = static_cast<std::size_t>(shape.chunk_bytes);
  const std::size_t chunks = (bytes + chunk - 1) / chunk;
  const Range part =
      shape.interleaved ? Range{blockIdx.x, chunks} : part_of(chunks, blockIdx.x, gridDim.x);
  const std::size_t step = shape.interleaved ? gridDim.x : 1;
  const auto start = [&](std::size_t index, int stage) {
    const std::size_t offset = index * chunk;
    const std::size_t rest = bytes - offset;
    bulk_copy(shared_address(stages + stage * chunk), data + offset,
              static_cast<std::uint32_t>(rest < chunk ? rest : chunk),
              shared_address(&barriers[stage]));
  };

  std::size_t next = part.begin;
  for (int s = 0; s < shape.stages && next < part.end; ++s, next += step) start(next, s);
  int stage = 0;
  std::uint32_t parity = 0;
  for (std::size_t done = part.begin; done < part.end; done += step) {
    barrier_wait(shared_address(&barriers[stage]), parity);
    if (next < part.end) {
      start(next, stage);
      next += step;
    }
    if (++stage == shape.stages) {
      stage = 0;
      parity ^= 1;
    }
  }
}

/// One way to read: `unroll` > 0 plain loads, otherwise bulk copies of `chunk_bytes`.
struct Variant {
  const char* name;
  int ctas_per_sm;
  int unroll;
  int chunk_bytes;
  bool interleaved;
};

constexpr Variant variants[] = {
    {"loads, 4 in flight, 4 CTAs an SM", 4, 4, 0, false},
    {"loads, 8 in flight, 2 CTAs an SM", 2, 8, 0, false},
    {"loads, 8 in flight, 4 CTAs an SM", 4, 8, 0, false},
    {"loads, 16 in flight, 1 CTA an SM", 1, 16, 0, false},
    {"loads, 16 in flight, 2 CTAs an SM", 2, 16, 0, false},
    {"bulk copies of 2 KB, 1 CTA an SM", 1, 0, 2048, false},
    {"bulk copies of 4 KB, 1 CTA an SM", 1, 0, 4096, false},
    {"bulk copies of 8 KB, 1 CTA an SM", 1, 0, 8192, false},
    {"bulk copies of 16 KB, 1 CTA an SM", 1, 0, 16384, false},
    {"bulk copies of 4 KB, 2 CTAs an SM", 2, 0, 4096, false},
    {"bulk copies of 4 KB, interleaved, 1 CTA an SM", 1, 0, 4096, true},
    {"bulk copies of 8 KB, interleaved, 1 CTA an SM", 1, 0, 8192, true},
};

void launch_loads(int unroll, unsigned ctas, const void* data, std::size_t bytes,
                  std::uint32_t* sink, cudaStream_t stream) {
  const auto* vectors = static_cast<const uint4*>(data);
  const std::size_t count = bytes / sizeof(uint4);
  switch (unroll) {
    case 4:
      loads_kernel<4><<<ctas, load_threads, 0, stream>>>(vectors, count, sink);
      break;
    case 8:
      loads_kernel<8><<<ctas, load_threads, 0, stream>>>(vectors, count, sink);
      break;
    case 16:
      loads_kernel<16><<<ctas, load_threads, 0, stream>>>(vectors, count, sink);
      break;
    default:
      throw Error(ErrorCode::invalid_argument,
                  "no streaming read kernel with " + std::to_string(unroll) + " loads in flight");
  }
  cuda::check_launch("loads_kernel");
}

}  // namespace

int stream_read_variants() { return static_cast<int>(std::size(variants)); }

std::string stream_read_name(int variant) { return variants[variant].name; }

void launch_stream_read(int variant, const void* data, std::size_t bytes, std::uint32_t* sink,
                        int sm_count, cudaStream_t stream) {
  const Variant& chosen = variants[variant];
  const auto ctas = static_cast<unsigned>(sm_count * chosen.ctas_per_sm);
  if (chosen.unroll > 0) {
    launch_loads(chosen.unroll, ctas, data, bytes, sink, stream);
    return;
  }
  const int smem_bytes = bulk_smem_bytes / chosen.ctas_per_sm;
  const int stages = std::min(smem_bytes / chosen.chunk_bytes, max_stages);
  cuda::check(cudaFuncSetAttribute(bulk_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   bulk_smem_bytes),
              "cudaFuncSetAttribute of bulk_kernel");
  bulk_kernel<<<ctas, bulk_threads, static_cast<std::size_t>(stages) * chosen.chunk_bytes,
                stream>>>(static_cast<const char*>(data), bytes,
                          {chosen.chunk_bytes, stages, chosen.interleaved});
  cuda::check_launch("bulk_kernel");
}

}  // namespace slimgemm::judge
