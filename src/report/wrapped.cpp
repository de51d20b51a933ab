// SPDX-License-Identifier: Apache-2.0
#include "report/wrapped.hpp"

#include <algorithm>

namespace slimgemm::report {
namespace {

constexpr std::size_t line_columns = 100;

}  // namespace

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

}  // namespace slimgemm::report
