// SPDX-License-Identifier: Apache-2.0
// What several subcommands share.
#pragma once

#include <string>

namespace slimgemm::cli {

/// The command as typed, without the program's folder.
std::string command_line();

/// Throws Error(invalid_argument) naming the option unless a file can be written at `path`; an
/// empty path is none.
void require_folder(const char* option, const std::string& path);

}  // namespace slimgemm::cli
