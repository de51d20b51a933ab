// SPDX-License-Identifier: Apache-2.0
// slimgemm doctor: what works on this machine, and what to do about the rest.
#include "commands.hpp"
#include "doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <memory>

namespace slimgemm::cli {
namespace {

int run_doctor(bool as_json) {
  const doctor::Machine machine = doctor::this_machine();
  const doctor::Diagnosis diagnosis = doctor::diagnose(machine);
  fmt::print("{}", as_json ? doctor::json_report(machine, diagnosis)
                           : doctor::text_report(machine, diagnosis));
  return diagnosis.has_problem() ? exit_failed : exit_ok;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("doctor", "Say what works on this machine, and what to do about the rest");
  command->footer(
      "Looks at the processor, the GPU and its driver, and at what this build was made with, then\n"
      "multiplies a small packed matrix with every kernel that can run here and checks every bit.\n"
      "Takes about a second and changes nothing.\n\n"
      "Each line is \"ok\", \"absent\" (not there; everything else works without it) or "
      "\"problem\".\n"
      "Where something can be done, an arrow (->) says what.\n\n"
      "Exit codes: 0 no problem, 1 some problem.");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Print it as JSON, for programs");
  command->callback([as_json, &exit_code] { exit_code = run_doctor(*as_json); });
}

}  // namespace slimgemm::cli
