// SPDX-License-Identifier: Apache-2.0
#include "cmd_common.hpp"

#include "support/visible_text.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

namespace slimgemm::cli {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  if (words.empty()) return "slimgemm";
  words[0] = std::filesystem::path(words[0]).filename().string();
  return fmt::format("{}", fmt::join(words, " "));
}

void require_folder(const char* option, const std::string& path) {
  if (path.empty()) return;
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} {}: its folder does not exist or cannot be written", option, path));
  }
}

std::string for_terminal(const std::string& text) {
  return visible_text(text, std::string::npos, true);
}

}  // namespace slimgemm::cli
