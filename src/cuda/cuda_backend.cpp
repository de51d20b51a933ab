// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_backend.hpp"

#include "codec/packed_access.hpp"
#include "cuda/kernel_entry.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tile_kernel_args.hpp"

#include <bit>
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
  check(cudaDeviceGetAttribute(&gpu.smem_per_sm_bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor,
                               device),
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

const void* kernel_for(const plan::Instance& instance) {
  return instance.family == plan::Family::stream ? stream_kernel_for(instance.index)
                                                 : tile_kernel_for(instance.index);
}

/// Lets every instance of an encoding use all of an SM's shared memory.
void prepare_kernels(Encoding encoding) {
  for (const plan::Instance& instance : plan::instances_of(encoding)) {
    check(cudaFuncSetAttribute(kernel_for(instance), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               plan::smem_limit_bytes),
          "cudaFuncSetAttribute for " + plan::instance_name(instance));
  }
}

/// Whether every exception, times 2^(112 - base), is a BF16 number again, with room for its
/// products with x.
bool exceptions_are_patchable(const PackedMatrix& weights, float inverse_scale) {
  constexpr float largest = 0x1p64f;
  for (const format::ExceptionGroup& group : PackedAccess::groups(weights)) {
    for (const format::ExceptionEntry& entry : group.entries) {
      const float weight = std::bit_cast<float>(static_cast<std::uint32_t>(entry.bits) << 16);
      if (!std::isfinite(weight)) continue;  // stays what it is
      const float scaled = weight * inverse_scale;
      if (std::abs(scaled) > largest || (std::bit_cast<std::uint32_t>(scaled) & 0xFFFF) != 0 ||
          scaled / inverse_scale != weight) {
        return false;
      }
    }
  }
  return true;
}

void launch(const plan::KernelPlan& plan, void* kernel_args, cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(plan.grid_x), static_cast<unsigned>(plan.grid_y));
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.smem_bytes);
  config.stream = stream;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(plan.cluster);
  attribute.val.clusterDim.y = 1;
  attribute.val.clusterDim.z = 1;
  config.attrs = &attribute;
  config.numAttrs = plan.cluster > 1 ? 1 : 0;
  void* parameters[] = {kernel_args};
  check(cudaLaunchKernelExC(&config, kernel_for(plan.instance), parameters),
        "launch of " + plan::instance_name(plan.instance));
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
      inverse_scale_(1.0f / scale_),
      patchable_(exceptions_are_patchable(weights, inverse_scale_)),
      nonfinite_((PackedAccess::header(weights).flags & format::has_nonfinite) != 0),
      group_count_(static_cast<std::int64_t>(PackedAccess::header(weights).group_count)) {
  require_hopper(device);
  const DeviceGuard guard(device);
  gpu_ = read_facts(device);
  prepare_kernels(encoding_);
  tiles_ = upload(PackedAccess::tiles(weights));
  groups_ = upload(PackedAccess::groups(weights));
  extra_begin_ = upload(PackedAccess::extra_begin(weights));
  // A copy from pageable memory may return before it has arrived; a caller's stream need not wait.
  check(cudaDeviceSynchronize(), "copy of the weights to the GPU");
}

std::int64_t CudaBackend::weight_bytes(std::int64_t rows) const {
  const auto row_tiles =
      static_cast<std::int64_t>(format::tiles_along(static_cast<std::uint64_t>(rows), 16));
  std::int64_t bytes = row_tiles * k_tiles_ * plan::tile_bytes(encoding_);
  if (encoding_ == Encoding::split12) {
    const std::int64_t extra = group_count_ - row_tiles_;
    bytes +=
        row_tiles * static_cast<std::int64_t>(sizeof(format::ExceptionGroup)) +
        (row_tiles + 1) * 4 +
        extra * static_cast<std::int64_t>(sizeof(format::ExceptionGroup)) * row_tiles / row_tiles_;
  }
  return bytes;
}

plan::Problem CudaBackend::problem(std::int64_t rows, std::int64_t m, bool x_aligned) const {
  return {.rows = rows,
          .k = k,
          .m = m,
          .encoding = encoding_,
          .tile_kernels_allowed = x_aligned && patchable_ && k % format::tile_k == 0};
}

void CudaBackend::run(const RunArgs& args) const {
  const bool aligned = x_is_aligned(args.x, args.x_row_stride);
  run_with(plan::plan_kernel(problem(args.row_end - args.row_begin, args.m, aligned), gpu_), args);
}

void CudaBackend::run_with(const plan::KernelPlan& plan, const RunArgs& args) const {
  const DeviceGuard guard(device_);
  if (plan.instance.family == plan::Family::stream) {
    launch_stream(plan, args);
  } else {
    launch_tile(plan, args);
  }
}

void CudaBackend::launch_stream(const plan::KernelPlan& plan, const RunArgs& args) const {
  StreamArgs kernel_args{};
  kernel_args.x_map_valid = x_is_aligned(args.x, args.x_row_stride) && k >= format::tile_k;
  kernel_args.all_x_by_tma = kernel_args.x_map_valid && k % format::tile_k == 0;
  if (kernel_args.x_map_valid) {
    kernel_args.x_map = make_x_map(args.x, args.m, k, args.x_row_stride, plan.x_rows,
                                   plan.instance.stream().k_warps);
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
  kernel_args.nonfinite = nonfinite_;
  launch(plan, &kernel_args, static_cast<cudaStream_t>(args.stream));
}

void CudaBackend::launch_tile(const plan::KernelPlan& plan, const RunArgs& args) const {
  TileArgs kernel_args{};
  kernel_args.x_map = make_x_map(args.x, args.m, k, args.x_row_stride, plan.x_rows, 1);
  kernel_args.w_map = make_tile_map(tiles_.as<void>(), plan::tile_bytes(encoding_), k_tiles_,
                                    row_tiles_, 4 * plan.instance.tile().row_blocks);
  kernel_args.exceptions = {groups_.as<format::ExceptionGroup>(), extra_begin_.as<std::uint32_t>(),
                            row_tiles_};
  kernel_args.out = args.out;
  kernel_args.m = args.m;
  kernel_args.rows = args.row_end - args.row_begin;
  kernel_args.x_rows = plan.x_rows;
  kernel_args.k_tiles = k_tiles_;
  kernel_args.first_row_tile = static_cast<int>(args.row_begin / format::tile_rows);
  kernel_args.row_tiles = static_cast<int>(
      format::tiles_along(static_cast<std::uint64_t>(kernel_args.rows), format::tile_rows));
  kernel_args.scale = scale_;
  kernel_args.inverse_scale = inverse_scale_;
  launch(plan, &kernel_args, static_cast<cudaStream_t>(args.stream));
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
  const plan::KernelPlan chosen = plan::plan_kernel(problem(rows, m, true), gpu_);
  result.kernel = plan::instance_name(chosen.instance);
  result.reason = chosen.reason;
  result.grid_ctas = chosen.grid_x * chosen.grid_y;
  result.threads_per_cta = chosen.threads;
  result.cluster_ctas = chosen.cluster;
  result.smem_bytes = chosen.smem_bytes;
  return result;
}

}  // namespace slimgemm::cuda

namespace slimgemm {

std::shared_ptr<const Linear::Backend> make_cuda_backend(const PackedMatrix& weights,
                                                         const LinearOptions& options) {
  return std::make_shared<cuda::CudaBackend>(weights, options.cuda_device);
}

}  // namespace slimgemm
