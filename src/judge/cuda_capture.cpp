// SPDX-License-Identifier: Apache-2.0
#include "judge/cuda_capture.hpp"

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace slimgemm::judge {
namespace {

constexpr const char* legacy_stream_fault =
    "use of the legacy default stream during capture (a launch without a stream, or a synchronous "
    "copy)";
constexpr const char* allocation_fault =
    "allocation during capture (cudaMalloc, cudaFree or another call that a graph cannot replay)";

/// What one attempt at capturing gave.
struct Attempt {
  Graph graph;                // null if the capture failed
  cudaError_t in_call = {};   // last error the call left behind
  cudaError_t at_end = {};    // of cudaStreamEndCapture
  std::exception_ptr thrown;  // by the call
  std::string thrown_message;

  [[nodiscard]] bool ok() const {
    return graph && in_call == cudaSuccess && at_end == cudaSuccess && !thrown;
  }
};

Attempt attempt_capture(cudaStream_t stream, cudaStreamCaptureMode mode, const StreamCall& call) {
  Attempt attempt;
  static_cast<void>(cudaGetLastError());
  cuda::check(cudaStreamBeginCapture(stream, mode), "cudaStreamBeginCapture");
  try {
    call(stream);
  } catch (const std::exception& error) {
    attempt.thrown = std::current_exception();
    attempt.thrown_message = error.what();
  } catch (...) {
    attempt.thrown = std::current_exception();
    attempt.thrown_message = "an exception that is no std::exception";
  }
  attempt.in_call = cudaGetLastError();
  cudaGraph_t graph = nullptr;
  attempt.at_end = cudaStreamEndCapture(stream, &graph);
  attempt.graph = Graph(graph);
  static_cast<void>(cudaGetLastError());
  return attempt;
}

bool is_general(cudaError_t status) {
  return status == cudaSuccess || status == cudaErrorStreamCaptureUnsupported ||
         status == cudaErrorStreamCaptureInvalidated;
}

/// Whether the relaxed mode captures `call` on `stream`.
bool captures_relaxed(cudaStream_t stream, const StreamCall& call) {
  return attempt_capture(stream, cudaStreamCaptureModeRelaxed, call).ok();
}

/// Names the fault of a failed capture. CUDA answers most faults with one and the same error, so
/// milder ways of capturing tell them apart: the relaxed mode permits what is only unsafe, such as
/// an allocation; a stream that does not order itself after the legacy default stream permits work
/// on that one; a host synchronisation is refused in every way.
std::string name_fault(const Attempt& attempt, cudaStream_t stream, const StreamCall& call) {
  const cudaError_t status = is_general(attempt.in_call) ? attempt.at_end : attempt.in_call;
  switch (status) {
    case cudaErrorStreamCaptureImplicit:
      return legacy_stream_fault;
    case cudaErrorCapturedEvent:
      return "host synchronisation during capture (on an event)";
    case cudaErrorStreamCaptureUnjoined:
      return "work forked to another stream that is not joined back during capture";
    case cudaErrorStreamCaptureIsolation:
      return "dependence on uncaptured work of another stream during capture";
    case cudaErrorStreamCaptureMerge:
      return "a merge with the capture of another stream during capture";
    default:
      break;
  }
  if (!is_general(status)) return "a failed CUDA call during capture";
  if (captures_relaxed(stream, call)) return allocation_fault;
  cudaStream_t raw = nullptr;
  cuda::check(cudaStreamCreateWithFlags(&raw, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  const Stream unordered(raw);
  if (captures_relaxed(unordered.get(), call)) return legacy_stream_fault;
  return "host synchronisation during capture";
}

[[noreturn]] void throw_capture_failed(const std::string& fault, const std::string& detail) {
  throw Error(ErrorCode::device_error, fault + ": the call cannot be replayed as a CUDA graph" +
                                           (detail.empty() ? "" : " (" + detail + ")"));
}

/// A graph must do device work on the given stream, and neither allocate nor call the host.
std::size_t check_nodes(cudaGraph_t graph) {
  std::size_t count = 0;
  cuda::check(cudaGraphGetNodes(graph, nullptr, &count), "cudaGraphGetNodes");
  std::vector<cudaGraphNode_t> nodes(count);
  if (count != 0) {
    cuda::check(cudaGraphGetNodes(graph, nodes.data(), &count), "cudaGraphGetNodes");
  }
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type{};
    cuda::check(cudaGraphNodeGetType(node, &type), "cudaGraphNodeGetType");
    if (type == cudaGraphNodeTypeMemAlloc || type == cudaGraphNodeTypeMemFree) {
      throw_capture_failed("allocation during capture", "cudaMallocAsync or cudaFreeAsync");
    }
    if (type == cudaGraphNodeTypeHost) {
      throw_capture_failed("a host function during capture", "cudaLaunchHostFunc");
    }
    if (type == cudaGraphNodeTypeGraph) {
      cudaGraph_t child = nullptr;
      cuda::check(cudaGraphChildGraphNodeGetGraph(node, &child), "cudaGraphChildGraphNodeGetGraph");
      check_nodes(child);
    }
  }
  return count;
}

}  // namespace

GraphExec capture(cudaStream_t stream, const StreamCall& call) {
  const Attempt attempt = attempt_capture(stream, cudaStreamCaptureModeGlobal, call);
  if (!attempt.ok()) {
    if (attempt.thrown && attempt.graph && attempt.in_call == cudaSuccess) {
      std::rethrow_exception(attempt.thrown);  // not the capture's fault
    }
    std::string detail = attempt.thrown_message;
    if (detail.empty()) {
      detail = cuda::describe(attempt.in_call == cudaSuccess ? attempt.at_end : attempt.in_call);
    }
    throw_capture_failed(name_fault(attempt, stream, call), detail);
  }
  if (check_nodes(attempt.graph.get()) == 0) {
    throw_capture_failed("nothing was launched on the given stream during capture", "");
  }
  cudaGraphExec_t exec = nullptr;
  cuda::check(cudaGraphInstantiate(&exec, attempt.graph.get(), 0), "cudaGraphInstantiate");
  GraphExec owned(exec);
  cuda::check(cudaGraphUpload(exec, stream), "cudaGraphUpload");
  cuda::check(cudaStreamSynchronize(stream), "cudaStreamSynchronize after cudaGraphUpload");
  return owned;
}

}  // namespace slimgemm::judge
