// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis.hpp"
#include "report/wrapped.hpp"

#include <fmt/format.h>

#include <iterator>

namespace slimgemm::doctor {
namespace {

using report::wrapped;

constexpr std::size_t text_indent = 11;

const char* works(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

std::string text_report(const Machine& machine, const Diagnosis& diagnosis) {
  std::string text;
  for (const Section& section : diagnosis.sections) {
    text += section.title + '\n';
    for (const Finding& finding : section.findings) {
      text += wrapped(fmt::format("  {:<{}}", name(finding.level), text_indent - 2), finding.text);
      if (finding.remedy.empty()) continue;
      text += wrapped(std::string(text_indent, ' ') + "-> ", finding.remedy);
    }
    text += '\n';
  }
  fmt::format_to(std::back_inserter(text), "Layers and packing on the CPU work: {}\n",
                 machine.cpu_tests.empty() ? "not tried" : works(diagnosis.cpu_works));
  fmt::format_to(std::back_inserter(text), "Layers on a GPU work: {}\n",
                 works(diagnosis.gpu_works));
  if (diagnosis.has_problem()) text += "There are problems; what to do stands beside each.\n";
  return text;
}

}  // namespace slimgemm::doctor
