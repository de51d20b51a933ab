// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <slimgemm/error.hpp>

#include <string>

namespace slimgemm {

/// Throws Error(invalid_argument). The message names the value and the way out.
[[noreturn]] inline void refuse_argument(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace slimgemm
