// SPDX-License-Identifier: Apache-2.0
// One function a subcommand: it adds its options to the app and, when chosen, writes the exit code.
#pragma once

#include <CLI/CLI.hpp>

namespace slimgemm::cli {

/// Exit codes of every subcommand.
enum ExitCode : int {
  exit_ok = 0,
  exit_failed = 1,  ///< the work was done and its verdict is negative (wrong result, ...)
  exit_usage = 2,   ///< bad usage, bad input, or no such device
};

void add_pack(CLI::App& app, int& exit_code);
void add_unpack(CLI::App& app, int& exit_code);
void add_verify(CLI::App& app, int& exit_code);
void add_judge(CLI::App& app, int& exit_code);
void add_plan(CLI::App& app, int& exit_code);
void add_tune(CLI::App& app, int& exit_code);
void add_score(CLI::App& app, int& exit_code);
void add_roofline(CLI::App& app, int& exit_code);
void add_inspect(CLI::App& app, int& exit_code);
void add_fit(CLI::App& app, int& exit_code);
void add_doctor(CLI::App& app, int& exit_code);

}  // namespace slimgemm::cli
