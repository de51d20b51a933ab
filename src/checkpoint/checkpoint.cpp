// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.hpp"

#include "checkpoint/directory.hpp"
#include "checkpoint/directory_jobs.hpp"
#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/packed_file.hpp"
#include "checkpoint/stopwatch.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

void require_there(const std::string& path) {
  if (!fs::exists(path)) throw Error(ErrorCode::io_error, fmt::format("{} does not exist", path));
}

std::string folder_of(const std::string& path) { return fs::absolute(path).parent_path().string(); }

void check_globs(const SafetensorsFile& source, const SelectOptions& options) {
  for (const auto* globs : {&options.include, &options.exclude}) {
    for (const std::string& glob : *globs) {
      const auto& tensors = source.header().tensors;
      if (std::none_of(tensors.begin(), tensors.end(),
                       [&](const Tensor& tensor) { return matches(glob, tensor.name); })) {
        refuse(fmt::format("no tensor of {} matches {}", source.path(), glob));
      }
    }
  }
}

VerifySummary verify_single(const std::string& packed, const std::string& against,
                            Workspace& workspace, Meter& meter) {
  const Stopwatch stopwatch;
  const std::string label = fs::path(packed).filename().string();
  VerifySummary summary;
  // A file that is not packed, or of another version, is an error and not a finding.
  meter.begin(PackedFile(packed).original_bytes());
  meter.stage(label);
  verify_file({.path = packed, .label = label, .against = against, .header_xxh3 = ""}, workspace,
              meter, summary);
  summary.verify_s = stopwatch.seconds();
  return summary;
}

PackSummary pack_single(const std::string& in, const std::string& out,
                        const PackCheckpointOptions& options, Workspace& workspace, Meter& meter) {
  const Stopwatch stopwatch;
  const SafetensorsFile source(in);
  const std::vector<Selection> selections = select_all(source.header(), options.select);
  check_packable(source, selections);
  check_globs(source, options.select);
  if (std::none_of(selections.begin(), selections.end(),
                   [](const Selection& selection) { return selection.packed; })) {
    const auto& tensors = source.header().tensors;
    refuse(fmt::format("{} has no tensor to pack: {}", in,
                       tensors.empty()
                           ? "it holds no tensors"
                           : fmt::format("{} stays because of: {}", printable(tensors.front().name),
                                         selections.front().why)));
  }
  check_space(expected_bytes(source, selections), free_bytes(folder_of(out)), out);
  PackSummary summary{.files = 1, .bytes_in = source.file_bytes()};
  meter.begin(source.file_bytes());
  meter.stage(fs::path(in).filename().string());
  const std::string working = working_name(out);
  summary.bytes_out = pack_file(source, working, options, workspace, meter, summary).file_bytes;
  summary.pack_s = stopwatch.seconds();
  if (options.verify) {
    const VerifySummary found = verify_single(working, "", workspace, meter);
    summary.verify_s = found.verify_s;
    if (!found.problems.empty()) {
      throw Error(ErrorCode::io_error, fmt::format("what was written is not what was packed: {}",
                                                   found.problems.front()));
    }
  }
  rename_into_place(working, out);
  return summary;
}

UnpackSummary unpack_single(const std::string& in, const std::string& out, Workspace& workspace,
                            Meter& meter) {
  const Stopwatch stopwatch;
  const PackedFile packed(in);
  packed.require_sound();
  check_space(packed.original_bytes(), free_bytes(folder_of(out)), out);
  meter.begin(packed.original_bytes());
  meter.stage(fs::path(in).filename().string());
  const std::string working = working_name(out);
  unpack_file(packed, working, workspace, meter);
  rename_into_place(working, out);
  return {.files = 1,
          .bytes_in = packed.file().file_bytes(),
          .bytes_out = packed.original_bytes(),
          .unpack_s = stopwatch.seconds()};
}

}  // namespace

PackSummary pack_checkpoint(const std::string& in, const std::string& out,
                            const PackCheckpointOptions& options, Meter& meter) {
  require_there(in);
  const std::string target = without_slash(out);
  check_output(in, target);
  Workspace workspace;
  return fs::is_directory(in) ? pack_directory(without_slash(in), target, options, workspace, meter)
                              : pack_single(in, target, options, workspace, meter);
}

UnpackSummary unpack_checkpoint(const std::string& in, const std::string& out, Meter& meter) {
  require_there(in);
  const std::string target = without_slash(out);
  check_output(in, target);
  Workspace workspace;
  return fs::is_directory(in) ? unpack_directory(without_slash(in), target, workspace, meter)
                              : unpack_single(in, target, workspace, meter);
}

VerifySummary verify_checkpoint(const std::string& packed, const std::string& against,
                                Meter& meter) {
  require_there(packed);
  if (!against.empty()) {
    require_there(against);
    if (fs::is_directory(packed) != fs::is_directory(against)) {
      refuse(fmt::format("{} and {}: both must be files, or both directories", packed, against));
    }
  }
  Workspace workspace;
  return fs::is_directory(packed)
             ? verify_directory(without_slash(packed), without_slash(against), "", workspace, meter)
             : verify_single(packed, against, workspace, meter);
}

}  // namespace slimgemm::checkpoint
