// SPDX-License-Identifier: Apache-2.0
// What all reports share.
#include "judge/report.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>

namespace slimgemm::judge {

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::passed:
      return "passed";
    case Verdict::failed:
      return "failed";
    case Verdict::invalid:
      return "invalid";
  }
  return "unknown";
}

Verdict verdict(const RunResult& result) {
  if (!result.contender_failures().empty()) return Verdict::failed;
  return result.baseline_failures().empty() ? Verdict::passed : Verdict::invalid;
}

std::string no_score_reason(const RunResult& result) {
  if (result.score) return {};
  if (verdict(result) == Verdict::failed) return "the contender broke a rule";
  if (verdict(result) == Verdict::invalid) return "the baseline broke a rule";
  if (!result.shape_file.empty()) return "a score is the fixed problem's, and this is a shape file";
  const auto scored = std::count_if(result.cases.begin(), result.cases.end(),
                                    [](const CaseResult& c) { return c.shape.scored; });
  const auto wanted = static_cast<std::ptrdiff_t>(loads().size() * layers().size());
  if (scored < wanted) {
    return fmt::format("only {} of the {} scored shapes were run", scored, wanted);
  }
  return "there is no baseline";
}

void write_file(const std::string& path, std::string_view content) {
  const std::string beside = fmt::format("{}.{}.tmp", path, getpid());
  const auto fail = [&](const char* what) {
    const int reason = errno;
    std::remove(beside.c_str());
    throw Error(ErrorCode::io_error,
                fmt::format("cannot {} {}: {}", what, path, std::strerror(reason)));
  };
  errno = 0;
  std::ofstream file(beside, std::ios::binary);
  file << content;
  file.close();
  if (!file) fail("write");
  if (std::rename(beside.c_str(), path.c_str()) != 0) fail("write");
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace slimgemm::judge
