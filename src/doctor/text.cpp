// SPDX-License-Identifier: Apache-2.0
#include "doctor/diagnosis.hpp"

#include <fmt/format.h>

#include <iterator>

namespace slimgemm::doctor {
namespace {

constexpr std::size_t line_columns = 100;
constexpr std::size_t text_indent = 11;

// `text` after `first`, broken at blanks; further lines begin at the column where it began.
std::string wrapped(const std::string& first, const std::string& text) {
  const std::string indent(first.size(), ' ');
  std::string lines;
  std::string line = first;
  std::size_t words = 0;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (words > 0 && line.size() + 1 + word.size() > line_columns) {
      lines += line + '\n';
      line = indent;
      words = 0;
    }
    if (words > 0) line += ' ';
    line += word;
    ++words;
    begin = end + 1;
  }
  return lines + line + '\n';
}

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
