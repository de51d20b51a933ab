// SPDX-License-Identifier: Apache-2.0
#include "cuda/cuda_backend.hpp"

#include "cuda/kernel_entry.hpp"
#include "cuda/tensor_map.hpp"
#include "cuda/tile_kernel_args.hpp"
#include "cuda/unpack.hpp"
#include "support/aligned_buffer.hpp"

#include <algorithm>
#include <memory>
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

/// Lets every instance of an encoding use all of an SM's shared memory.
void prepare_kernels(Encoding encoding) {
  for (const plan::Instance& instance : plan::instances_of(encoding)) {
    check(cudaFuncSetAttribute(kernel_for(instance), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               plan::smem_limit_bytes),
          "cudaFuncSetAttribute for " + plan::instance_name(instance));
  }
}

DeviceMemory upload(const PackedMatrix& weights, const ImageLayout& layout, int device) {
  const DeviceGuard guard(device);
  AlignedBuffer host(layout.size_bytes());
  write_image(weights, layout, {host.data(), host.size()});
  DeviceMemory memory(host.size());
  check(cudaMemcpy(memory.as<void>(), host.data(), host.size(), cudaMemcpyHostToDevice),
        "copy of " + std::to_string(host.size()) + " weight bytes to the GPU");
  // A copy from pageable memory may return before it has arrived; a caller's stream need not wait.
  check(cudaDeviceSynchronize(), "copy of the weights to the GPU");
  return memory;
}

DType dtype_of(Encoding encoding) { return encoding == Encoding::raw32 ? DType::f32 : DType::bf16; }

}  // namespace

CudaBackend::CudaBackend(const PackedMatrix& weights, const LinearOptions& options)
    : CudaBackend(image_layout(weights), nullptr, options) {
  owned_ = upload(weights, image_layout(weights), device_);
  image_ = owned_.as<unsigned char>();
}

CudaBackend::CudaBackend(const ImageLayout& layout, const void* image, const LinearOptions& options)
    : Linear::Backend(layout.n, layout.k, dtype_of(layout.encoding), Device::cuda),
      device_(options.cuda_device),
      encoding_(layout.encoding),
      offsets_(layout.encoding, static_cast<std::uint64_t>(layout.n),
               static_cast<std::uint64_t>(layout.k)),
      decode_{.window = static_cast<std::uint32_t>(layout.window_base / 2) * 0x01010101u,
              .nonfinite = layout.has_nonfinite},
      programmatic_launch_(options.programmatic_launch),
      more_groups_(layout.more_groups),
      image_(static_cast<const unsigned char*>(image)) {
  require_hopper(device_);
  const DeviceGuard guard(device_);
  gpu_ = read_facts(device_);
  prepare_kernels(encoding_);
  load_unpack_kernels();
  if (options.batch_invariant) {
    k_orders_ = {plan::choose_k_order(problem(n, 1, true), gpu_),
                 plan::choose_k_order(problem(n, 1, false), gpu_)};
  }
}

std::int64_t CudaBackend::weight_bytes(std::int64_t rows) const {
  const auto row_tiles =
      static_cast<std::int64_t>(format::tiles_along(static_cast<std::uint64_t>(rows), 16));
  std::int64_t bytes = row_tiles * k_tiles() * plan::tile_bytes(encoding_);
  if (encoding_ == Encoding::split12) {
    // The heads; row tiles with more groups read those, too (on average).
    constexpr auto group_bytes = static_cast<std::int64_t>(sizeof(format::ExceptionGroup));
    bytes += head_groups * row_tiles * group_bytes +
             more_groups_ * group_bytes * row_tiles / static_cast<std::int64_t>(offsets_.row_tiles);
  }
  return bytes;
}

plan::Problem CudaBackend::problem(std::int64_t rows, std::int64_t m, bool x_aligned) const {
  return {.rows = rows, .k = k, .m = m, .encoding = encoding_, .x_aligned = x_aligned};
}

plan::KernelPlan CudaBackend::choose(const plan::Problem& problem) const {
  if (!k_orders_) return plan::plan_kernel(problem, gpu_);
  return plan::plan_in_k_order((*k_orders_)[problem.x_aligned ? 0 : 1], problem, gpu_);
}

void CudaBackend::run(const RunArgs& args) const {
  const bool aligned = x_is_aligned(args.x, args.x_row_stride);
  run_with(choose(problem(args.row_end - args.row_begin, args.m, aligned)), args);
}

void CudaBackend::run_with(const plan::KernelPlan& plan, const RunArgs& args) const {
  const DeviceGuard guard(device_);
  if (plan.instance.family == plan::Family::stream) {
    launch_stream(plan, args);
  } else {
    launch_tile(plan, args);
  }
}

ExceptionView CudaBackend::exceptions() const {
  return {offsets_.head, reinterpret_cast<const format::ExceptionGroup*>(image_ + offsets_.more)};
}

void CudaBackend::launch_stream(const plan::KernelPlan& plan, const RunArgs& args) const {
  StreamArgs kernel_args{};
  kernel_args.tiles = image_;
  kernel_args.row_tile_bytes = offsets_.row_tile_bytes;
  kernel_args.x = args.x;
  kernel_args.x_stride_bytes = static_cast<std::uint32_t>(args.x_row_stride * 2);
  kernel_args.out = args.out;
  kernel_args.exceptions = exceptions();
  kernel_args.decode = decode_;
  kernel_args.m = static_cast<int>(args.m);
  kernel_args.k = static_cast<int>(k);
  kernel_args.k_tiles = k_tiles();
  kernel_args.rows = static_cast<int>(args.row_end - args.row_begin);
  kernel_args.first_row_tile = static_cast<int>(args.row_begin / format::tile_rows);
  kernel_args.last_row_tile = static_cast<int>((args.row_end - 1) / format::tile_rows);
  kernel_args.x_rows = plan.x_rows;
  kernel_args.layout = plan::stream_layout(plan.instance.stream(), plan.x_rows);
  kernel_args.dependent = programmatic_launch_;
  launch(plan, dim3(static_cast<unsigned>(plan.grid_x), static_cast<unsigned>(plan.grid_y)),
         &kernel_args, args.stream);
}

void CudaBackend::launch_tile(const plan::KernelPlan& plan, const RunArgs& args) const {
  const plan::TileConfig& config = plan.instance.tile();
  TileArgs kernel_args{};
  kernel_args.x_map =
      make_x_map(args.x, args.m, k, args.x_row_stride, plan::x_box_rows(config, plan.x_rows), 1);
  kernel_args.tiles = image_;
  kernel_args.row_tile_bytes = offsets_.row_tile_bytes;
  kernel_args.exceptions = exceptions();
  kernel_args.out = args.out;
  kernel_args.m = static_cast<std::uint32_t>(args.m);
  kernel_args.rows = static_cast<std::uint32_t>(args.row_end - args.row_begin);
  kernel_args.out_vectors =
      kernel_args.rows % 8 == 0 && reinterpret_cast<std::uintptr_t>(args.out) % 16 == 0;
  kernel_args.x_rows = static_cast<std::uint32_t>(plan.x_rows);
  kernel_args.k_tiles = k_tiles();
  kernel_args.first_row_tile = static_cast<int>(args.row_begin / format::tile_rows);
  kernel_args.last_row_tile = static_cast<int>((args.row_end - 1) / format::tile_rows);
  kernel_args.decode = decode_;
  kernel_args.dependent = programmatic_launch_;
  // Token blocks of the same rows side by side: they read the same weights at the same time. Many
  // token blocks in equal groups of up to plan::token_block_group.
  const std::int64_t row_groups = plan.grid_x / plan.cluster;
  const std::int64_t groups = (plan.grid_y - 1) / plan::token_block_group + 1;
  const std::int64_t group = (plan.grid_y - 1) / groups + 1;
  dim3 grid(static_cast<unsigned>(plan.cluster * group), static_cast<unsigned>(row_groups),
            static_cast<unsigned>(groups));
  if (plan::is_persistent(config)) {
    if (kernel_args.out_vectors) {
      kernel_args.out_map = make_out_map(args.out, args.m, args.row_end - args.row_begin);
    }
    kernel_args.token_blocks = static_cast<int>(plan.grid_y);
    kernel_args.token_group = static_cast<int>(group);
    kernel_args.row_groups = static_cast<int>(row_groups);
    grid = dim3(static_cast<unsigned>(plan::launched_ctas(plan, gpu_)));
  }
  launch(plan, grid, &kernel_args, args.stream);
}

void CudaBackend::launch(const plan::KernelPlan& plan, dim3 grid, void* kernel_args,
                         void* stream) const {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(plan.threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(plan.smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attributes[2] = {};
  config.attrs = attributes;
  if (plan.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = static_cast<unsigned>(plan.cluster);
    cluster.val.clusterDim.y = 1;
    cluster.val.clusterDim.z = 1;
  }
  if (programmatic_launch_) {
    cudaLaunchAttribute& dependent = attributes[config.numAttrs++];
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
  }
  void* parameters[] = {kernel_args};
  check(cudaLaunchKernelExC(&config, kernel_for(plan.instance), parameters),
        "launch of " + plan::instance_name(plan.instance));
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
  const plan::KernelPlan chosen = choose(problem(rows, m, true));
  result.kernel = plan::instance_name(chosen.instance);
  result.reason = chosen.reason;
  result.grid_ctas = plan::launched_ctas(chosen, gpu_);
  result.threads_per_cta = chosen.threads;
  result.cluster_ctas = chosen.cluster;
  result.smem_bytes = chosen.smem_bytes;
  return result;
}

}  // namespace slimgemm::cuda

namespace slimgemm {

std::shared_ptr<const Linear::Backend> make_cuda_backend(const PackedMatrix& weights,
                                                         const LinearOptions& options) {
  return std::make_shared<cuda::CudaBackend>(weights, options);
}

std::shared_ptr<const Linear::Backend> make_cuda_view(const ImageLayout& layout, const void* image,
                                                      const LinearOptions& options) {
  return std::make_shared<cuda::CudaBackend>(layout, image, options);
}

}  // namespace slimgemm
