// SPDX-License-Identifier: Apache-2.0
// The result of a run for people (text, HTML) and for programs (JSON, docs/report-schema.md).
#pragma once

#include "judge/host_facts.hpp"
#include "judge/run.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace slimgemm::judge {

/// What a report states beside the result.
struct ReportFacts {
  std::string command_line;
  std::string version;
  std::string commit;
  std::string date;  ///< UTC, ISO 8601
  std::uint64_t seed = 0;
  bool is_cuda = false;
  Facts device;
};

enum class Verdict {
  passed,
  failed,   ///< the contender broke a rule
  invalid,  ///< the baseline broke one: its times mean nothing
};
/// "passed", "failed", "invalid".
const char* name(Verdict verdict);
Verdict verdict(const RunResult& result);

/// Why a run has no score; empty if it has one.
std::string no_score_reason(const RunResult& result);

/// Tables of the shapes and the loads, the score, and every failure by name.
std::string text_report(const RunResult& result, const ReportFacts& facts);

/// The timed shapes as a markdown table with what a reader must know of the run, for a page that
/// quotes it.
std::string markdown_report(const RunResult& result, const ReportFacts& facts);

/// False in a build without JSON; then the two below throw Error(unsupported).
bool reports_available();
std::string json_report(const RunResult& result, const ReportFacts& facts);
/// One self-contained page, the JSON inside it.
std::string html_report(const RunResult& result, const ReportFacts& facts);
/// The charts of that page for a run of a shape file.
std::string html_shapes_section(const RunResult& result);

/// Writes beside the file and renames, so that a reader never sees half of it.
/// Errors: io_error naming the path and the system's reason.
void write_file(const std::string& path, std::string_view content);

/// Now, as "2026-01-31T12:34:56Z".
std::string utc_now();

}  // namespace slimgemm::judge
