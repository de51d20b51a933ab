// SPDX-License-Identifier: Apache-2.0
// Turns a call into a CUDA graph, and names what the call did that a graph cannot hold.
#pragma once

#include "judge/cuda_handles.hpp"

#include <functional>

namespace slimgemm::judge {

using StreamCall = std::function<void(cudaStream_t stream)>;

/// Captures `call` on `stream` (idle, not capturing), instantiates the graph and uploads it.
/// Throws Error(device_error) whose message says "host synchronisation during capture", "allocation
/// during capture", "legacy default stream", ... The stream is no longer capturing afterwards.
GraphExec capture(cudaStream_t stream, const StreamCall& call);

}  // namespace slimgemm::judge
