// SPDX-License-Identifier: Apache-2.0
// What the backend needs of the kernels that decode a device image.
#pragma once

namespace slimgemm::cuda {

/// Loads the kernels of unpack_image_cuda() on the current device, so that its first call may be
/// one that is captured into a graph.
void load_unpack_kernels();

}  // namespace slimgemm::cuda
