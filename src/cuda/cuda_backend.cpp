// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_backend.hpp"

#include "codec/packed_access.hpp"
#include "cuda/stream_launch.hpp"
#include "cuda/tensor_map.hpp"

#include <cmath>
#include <memory>
#include <span>
#include <string>

namespace slimgemm::cuda {
namespace {

void require_hopper(int device) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (device < 0 || device >= count) {
    throw Error(ErrorCode::unsupported, "cuda_device is " + std::to_string(device) +
                                            ": this machine has " + std::to_string(count) +
                                            " CUDA device(s), numbered from 0");
  }
  int major = 0;
  int minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
        "cudaDeviceGetAttribute");
  if (major != 9 || minor != 0) {
    throw Error(ErrorCode::unsupported,
                "CUDA device " + std::to_string(device) + " has compute capability " +
                    std::to_string(major) + "." + std::to_string(minor) +
                    ": the GPU kernels are for Hopper (9.0, H100 or H200); use Device::cpu");
  }
}

plan::GpuFacts read_facts(int device) {
  plan::GpuFacts gpu;
  check(cudaDeviceGetAttribute(&gpu.sm_count, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&gpu.smem_per_sm_bytes,
                               cudaDevAttrMaxSharedMemoryPerMultiprocessor, device),
        "cudaDeviceGetAttribute");
  return gpu;
}

template <class T>
DeviceMemory upload(std::span<const T> from) {
  if (from.empty()) return {};
  DeviceMemory memory(from.size_bytes());
  check(cudaMemcpy(memory.as<void>(), from.data(), from.size_bytes(), cudaMemcpyHostToDevice),
        "copy of " + std::to_string(from.size_bytes()) + " weight bytes to the GPU");
  return memory;
}

/// Lets every instance of an encoding use all of an SM's shared memory.
void prepare_kernels(Encoding encoding) {
  for (std::size_t i = 0; i < plan::stream_count; ++i) {
    if (plan::stream_table[i].encoding != encoding) continue;
    check(cudaFuncSetAttribute(stream_kernel_for(i), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               plan::smem_limit_bytes),
          "cudaFuncSetAttribute for " + plan::instance_name(plan::stream_table[i]));
  }
}

}  // namespace

CudaBackend::CudaBackend(const PackedMatrix& weights, int device)
    : Linear::Backend(weights.n(), weights.k(), weights.dtype(), Device::cuda),
      device_(device),
      encoding_(weights.encoding()),
      row_tiles_(static_cast<std::uint32_t>(PackedAccess::row_tiles(weights))),
      k_tiles_(static_cast<int>(PackedAccess::k_tiles(weights))),
      scale_(encoding_ == Encoding::split12
                 ? std::ldexp(1.0f, weights.window_base() - format::decoded_base_exponent)
                 : 1.0f),
      group_count_(static_cast<std::int64_t>(PackedAccess::header(weights).group_count)) {
  require_hopper(device);
  const DeviceGuard guard(device);
  gpu_ = read_facts(device);
  prepare_kernels(encoding_);
  tiles_ = upload(PackedAccess::tiles(weights));
  groups_ = upload(PackedAccess::groups(weights));
  extra_begin_ = upload(PackedAccess::extra_begin(weights));
}

std::int64_t CudaBackend::weight_bytes(std::int64_t rows) const {
  const auto row_tiles =
      static_cast<std::int64_t>(format::tiles_along(static_cast<std::uint64_t>(rows), 16));
  std::int64_t bytes = row_tiles * k_tiles_ * plan::tile_bytes(encoding_);
  if (encoding_ == Encoding::split12) {
    const std::int64_t extra = group_count_ - row_tiles_;
    bytes += row_tiles * static_cast<std::int64_t>(sizeof(format::ExceptionGroup)) +
             (row_tiles + 1) * 4 +
             extra * static_cast<std::int64_t>(sizeof(format::ExceptionGroup)) * row_tiles /
                 row_tiles_;
  }
  return bytes;
}

void CudaBackend::run(const RunArgs& args) const {
  run_with(plan::plan_stream(problem(args.row_end - args.row_begin, args.m), gpu_), args);
}

void CudaBackend::run_with(const plan::StreamPlan& plan, const RunArgs& args) const {
  const DeviceGuard guard(device_);
  const plan::StreamConfig& config = plan.config();
  StreamArgs kernel_args{};
  kernel_args.x_by_tma = tma_can_read(args.x, args.x_row_stride, k);
  if (kernel_args.x_by_tma) {
    kernel_args.x_map =
        make_x_map(args.x, args.m, k, args.x_row_stride, plan.x_rows, config.k_warps);
  }
  kernel_args.tiles = tiles_.as<unsigned char>();
  kernel_args.exceptions = {groups_.as<format::ExceptionGroup>(), extra_begin_.as<std::uint32_t>(),
                            row_tiles_};
  kernel_args.x = args.x;
  kernel_args.out = args.out;
  kernel_args.x_row_stride = args.x_row_stride;
  kernel_args.m = args.m;
  kernel_args.rows = args.row_end - args.row_begin;
  kernel_args.k = static_cast<int>(k);
  kernel_args.k_tiles = k_tiles_;
  kernel_args.first_row_tile = static_cast<int>(args.row_begin / format::tile_rows);
  kernel_args.row_tiles = static_cast<int>(
      format::tiles_along(static_cast<std::uint64_t>(kernel_args.rows), format::tile_rows));
  kernel_args.x_rows = plan.x_rows;
  kernel_args.scale = scale_;

  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(plan.grid_x), static_cast<unsigned>(plan.grid_y));
  launch.blockDim = dim3(static_cast<unsigned>(plan::cta_threads(config)));
  launch.dynamicSmemBytes = static_cast<std::size_t>(plan.layout.total);
  launch.stream = static_cast<cudaStream_t>(args.stream);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(config.cluster);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  launch.attrs = &attribute;
  launch.numAttrs = config.cluster > 1 ? 1 : 0;
  void* parameters[] = {&kernel_args};
  check(cudaLaunchKernelExC(&launch, stream_kernel_for(plan.index), parameters),
        "launch of " + plan::instance_name(config));
}

Plan CudaBackend::plan(std::int64_t rows, std::int64_t m) const {
  Plan result;
  result.n = rows;
  result.k = k;
  result.m = m;
  result.weight_bytes = weight_bytes(rows);
  if (m == 0) {
    result.kernel = "none";
    result.reason = "no tokens";
    return result;
  }
  const plan::StreamPlan chosen = plan::plan_stream(problem(rows, m), gpu_);
  const plan::StreamConfig& config = chosen.config();
  result.kernel = plan::instance_name(config);
  result.reason = chosen.reason;
  result.grid_ctas = chosen.grid_x * chosen.grid_y;
  result.threads_per_cta = plan::cta_threads(config);
  result.cluster_ctas = config.cluster;
  result.smem_bytes = chosen.layout.total;
  return result;
}

}  // namespace slimgemm::cuda

namespace slimgemm {

std::shared_ptr<const Linear::Backend> make_cuda_backend(const PackedMatrix& weights,
                                                         const LinearOptions& options) {
  return std::make_shared<cuda::CudaBackend>(weights, options.cuda_device);
}

}  // namespace slimgemm
