// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdexcept>
#include <string>

namespace slimgemm {

/// What kind of thing went wrong. The numeric values are those of `slimgemm_status` in slimgemm.h.
enum class ErrorCode : int {
  invalid_argument = 1,  ///< a value the caller passed is out of its documented range
  corrupt_data = 2,      ///< packed bytes that do not follow docs/format.md
  unsupported = 3,       ///< valid, but this build or this machine can't do it
  out_of_memory = 4,     ///< host or device memory ran out
  device_error = 5,      ///< the CUDA runtime or driver reported an error
  io_error = 6,          ///< a file could not be read or written
};

/// The one exception type of the library. `what()` names the value, its limit and the way out.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace slimgemm
