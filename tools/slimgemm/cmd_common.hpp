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

/// A message or report, with what could steer a terminal made visible; it may hold names from
/// files.
std::string for_terminal(const std::string& text);

}  // namespace slimgemm::cli
