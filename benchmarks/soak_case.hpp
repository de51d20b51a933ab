// SPDX-License-Identifier: Apache-2.0
// One layer's graph, replayed very often beside other work, every result compared on the GPU.
#pragma once

#include "soak_kernels.hpp"

#include "cuda/cuda_backend.hpp"
#include "judge/cases.hpp"
#include "judge/cuda_handles.hpp"

#include <slimgemm/slimgemm.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace slimgemm::bench {

/// Results that one graph computes and checks: a launch from the host takes longer than a small
/// layer.
inline constexpr int replays_a_graph = 32;

/// What is replayed.
struct SoakCase {
  judge::LayerInfo layer;
  std::int64_t m = 1;
  bool cluster = false;       ///< takes an instance whose CTAs meet in a cluster
  bool programmatic = false;  ///< LinearOptions::programmatic_launch

  [[nodiscard]] std::string name() const;
};

/// Generated weights of a layer.
PackedMatrix pack_layer(const judge::LayerInfo& layer);

/// The other stream's work: a layer with kernels of both families, and a copy.
class SoakLoad {
 public:
  SoakLoad(const judge::LayerInfo& layer, int cuda_device);
  void enqueue(cudaStream_t stream) const;

 private:
  Linear linear_;
  judge::DeviceMemory x_;
  judge::DeviceMemory out_;
  judge::DeviceMemory copies_;
};

struct SoakOutcome {
  std::int64_t replays = 0;
  std::int64_t differing = 0;
  std::int64_t first_replay = 0;  ///< the first that differs, from 0
  std::int64_t first_byte = 0;    ///< lowest 16 bytes of out that ever differed
  std::int64_t load_rounds = 0;
  double elapsed_s = 0;
};

class Soak {
 public:
  /// Computes the first result, alone. Errors: unsupported if no kernel fits; device_error if the
  /// result is not finite or not wholly written.
  Soak(const SoakCase& which, const PackedMatrix& packed, int cuda_device);

  [[nodiscard]] const SoakCase& which() const { return which_; }
  [[nodiscard]] std::string instance() const { return plan::instance_name(plan_.instance); }

  /// At least `replays` replays beside the load, after some against a result with a flipped bit,
  /// which the check must see. `progress` is told the share that is enqueued.
  /// Errors: device_error if a check was left out or missed the flipped bit.
  SoakOutcome run(const SoakLoad& load, std::int64_t replays,
                  const std::function<void(double share)>& progress);

 private:
  void run_layer(cudaStream_t stream) const;
  void enqueue(cudaStream_t stream) const;
  void make_expected();
  void reset_tally() const;
  [[nodiscard]] SoakTally read_tally(std::int64_t checks) const;
  void flip_bit_of_expected() const;
  void require_alert(class Lane& lane) const;

  SoakCase which_;
  cuda::CudaBackend backend_;
  plan::KernelPlan plan_;
  judge::DeviceMemory x_;
  judge::DeviceMemory x_source_;
  judge::DeviceMemory out_;
  judge::DeviceMemory expected_;
  judge::DeviceMemory tally_;
};

}  // namespace slimgemm::bench
