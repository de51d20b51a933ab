// SPDX-License-Identifier: Apache-2.0
#include "cmd_common.hpp"
#include "commands.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

namespace slimgemm::cli {
namespace {

int run(int argc, char** argv) {
  CLI::App app{"SlimGEMM: linear layers for LLM inference on losslessly packed BF16 weights"};
  app.set_version_flag("--version", "slimgemm " SLIMGEMM_VERSION);
  app.require_subcommand(1);
  int exit_code = exit_ok;
  add_pack(app, exit_code);
  add_unpack(app, exit_code);
  add_verify(app, exit_code);
  add_judge(app, exit_code);
  add_plan(app, exit_code);
  add_tune(app, exit_code);
  add_score(app, exit_code);
  add_roofline(app, exit_code);
  add_inspect(app, exit_code);
  add_fit(app, exit_code);
  add_doctor(app, exit_code);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  return exit_code;
}

}  // namespace
}  // namespace slimgemm::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond ulimit -f is an error like a full disk
  try {
    const int exit_code = slimgemm::cli::run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::fprintf(stderr, "slimgemm: the output could not be written: %s\n", std::strerror(errno));
      return slimgemm::cli::exit_usage;
    }
    return exit_code;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "slimgemm: %s\n", slimgemm::cli::for_terminal(error.what()).c_str());
    return slimgemm::cli::exit_usage;
  }
}
