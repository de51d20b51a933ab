// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace slimgemm::doctor {
namespace {

bool all_passed(const std::vector<SelfTest>& tests) {
  return std::all_of(tests.begin(), tests.end(),
                     [](const SelfTest& test) { return test.problem.empty(); });
}

Section diagnose_build(const Machine& machine) {
  Section section{"This build", {}};
  const std::string commit = machine.commit == "unknown" ? "" : " (" + machine.commit + ")";
  section.findings.push_back(
      {"build.version", Level::ok,
       fmt::format("slimgemm {}{}, compiled with {}", machine.version, commit, machine.compiler),
       ""});
  for (const BuildPart& part : machine.parts) {
    if (part.built) {
      section.findings.push_back({"build." + part.key, Level::ok,
                                  fmt::format("{}: yes, with {}", part.name, part.library), ""});
    } else {
      section.findings.push_back(
          {"build." + part.key, Level::absent,
           fmt::format("{}: not in this build; {}", part.name, part.without),
           fmt::format("install {} (on Debian and Ubuntu: apt-get install {}), configure and "
                       "build again",
                       part.library, part.package)});
    }
  }
  return section;
}

Finding diagnose_choice(const Processor& processor) {
  if (!processor.problem.empty()) {
    return {"cpu.chosen", Level::problem, processor.problem,
            "unset SLIMGEMM_CPU_TARGET, or set it to one of the kernels above"};
  }
  if (!processor.forced.empty()) {
    return {"cpu.chosen", Level::ok,
            fmt::format("layers run {}, as SLIMGEMM_CPU_TARGET asks", processor.chosen),
            "unset SLIMGEMM_CPU_TARGET to have the fastest kernels chosen"};
  }
  return {"cpu.chosen", Level::ok,
          fmt::format("layers run {}, the fastest of these (the environment variable "
                      "SLIMGEMM_CPU_TARGET forces another)",
                      processor.chosen),
          ""};
}

Section diagnose_processor(const Machine& machine) {
  const Processor& cpu = machine.processor;
  Section section{"Processor", {}};
  auto& findings = section.findings;
  findings.push_back({"cpu.model", Level::ok,
                      fmt::format("{} ({}), {} hardware threads, {:.1f} GiB of memory", cpu.model,
                                  cpu.architecture, cpu.threads,
                                  static_cast<double>(cpu.memory_bytes) / (1ULL << 30)),
                      ""});
  if (!cpu.instructions.empty()) {
    findings.push_back(
        {"cpu.instructions", Level::ok,
         fmt::format("instructions that kernels can use: {}", fmt::join(cpu.instructions, ", ")),
         ""});
  } else {
    findings.push_back({"cpu.instructions", Level::absent,
                        "none of AVX2, AVX-512 and AVX-512 BF16: layers run the plain kernel, many "
                        "times slower",
                        "take a processor with AVX2 (x86-64 from about 2013 on) for layers on the "
                        "CPU; packing works here as it is"});
  }
  findings.push_back({"cpu.kernels", Level::ok,
                      fmt::format("kernels that run here: {}", fmt::join(cpu.kernels, ", ")), ""});
  findings.push_back(diagnose_choice(cpu));
  for (const SelfTest& test : machine.cpu_tests) {
    if (test.problem.empty()) {
      findings.push_back(
          {"cpu.test." + test.what, Level::ok,
           fmt::format("tried {}: packed, unpacked, multiplied; every bit is right", test.what),
           ""});
    } else {
      findings.push_back(
          {"cpu.test." + test.what, Level::problem,
           fmt::format("tried {}: {}", test.what, test.problem),
           "do not use this build here: its results are wrong. Please report this text; until "
           "then, SLIMGEMM_CPU_TARGET chooses among the kernels that pass"});
    }
  }
  return section;
}

}  // namespace

const char* name(Level level) {
  switch (level) {
    case Level::ok:
      return "ok";
    case Level::absent:
      return "absent";
    case Level::problem:
      return "problem";
  }
  return "unknown";
}

bool Diagnosis::has_problem() const {
  return std::any_of(sections.begin(), sections.end(), [](const Section& section) {
    return std::any_of(section.findings.begin(), section.findings.end(),
                       [](const Finding& finding) { return finding.level == Level::problem; });
  });
}

Diagnosis diagnose(const Machine& machine) {
  Diagnosis diagnosis;
  diagnosis.sections = {diagnose_build(machine), diagnose_processor(machine),
                        diagnose_gpu(machine)};
  diagnosis.cpu_works = machine.processor.problem.empty() && !machine.cpu_tests.empty() &&
                        all_passed(machine.cpu_tests);
  diagnosis.gpu_works = std::any_of(machine.gpu_tests.begin(), machine.gpu_tests.end(),
                                    [](const SelfTest& test) { return test.problem.empty(); });
  return diagnosis;
}

}  // namespace slimgemm::doctor
