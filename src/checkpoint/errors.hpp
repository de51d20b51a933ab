// SPDX-License-Identifier: Apache-2.0
// The three ways in which this folder fails, and why a system call did.
#pragma once

#include "support/refuse.hpp"

#include <slimgemm/error.hpp>

#include <cerrno>
#include <cstring>
#include <string>

namespace slimgemm::checkpoint {

/// A wish of the caller that can't be met.
[[noreturn]] inline void refuse(const std::string& what) { refuse_argument(what); }

/// A file whose content is wrong.
[[noreturn]] inline void corrupt(const std::string& path, const std::string& what) {
  throw Error(ErrorCode::corrupt_data, path + ": " + what);
}

/// A file that can't be read or written.
[[noreturn]] inline void fail(const std::string& what) { throw Error(ErrorCode::io_error, what); }

/// What errno says.
inline std::string reason() { return std::strerror(errno); }

}  // namespace slimgemm::checkpoint
