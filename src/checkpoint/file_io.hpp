// SPDX-License-Identifier: Apache-2.0
// Files by descriptor: whole reads and writes at an offset, with errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace slimgemm::checkpoint {

/// A descriptor of the file, which must be a regular file. Errors: io_error naming path and reason.
int open_for_reading(const std::string& path);

/// Errors: io_error.
std::uint64_t file_size(int descriptor, const std::string& path);

/// Reads all of `to` from byte `offset`; large reads are split over threads.
/// Errors: io_error, also where the file ends before.
void read_at(int descriptor, std::uint64_t offset, std::span<std::byte> to,
             const std::string& path);

}  // namespace slimgemm::checkpoint
