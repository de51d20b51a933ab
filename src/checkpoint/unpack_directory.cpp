// SPDX-License-Identifier: Apache-2.0
// Unpacking and verifying follow the manifest: it says what every file must be.
#include "checkpoint/directory.hpp"
#include "checkpoint/directory_jobs.hpp"
#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/pack_state.hpp"
#include "checkpoint/packed_file.hpp"
#include "checkpoint/stopwatch.hpp"
#include "checkpoint/xxh3.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;

// Bytes of the original files, for progress and space. Files that cannot be read count nothing:
// what is wrong with them is said when their turn comes.
std::uint64_t original_bytes(const std::string& directory, const Manifest& manifest) {
  std::uint64_t total = 0;
  for (const FileRecord& file : manifest.files) {
    if (file.kind == FileKind::changed) total += file.original.size();
    if (file.kind == FileKind::copied) total += file.bytes;
    if (file.kind != FileKind::packed) continue;
    try {
      total += PackedFile(join(directory, file.name)).original_bytes();
    } catch (const Error&) {
    }
  }
  return total;
}

void unpack_one(const std::string& in, const std::string& working, const FileRecord& file,
                Workspace& workspace, Meter& meter) {
  const std::string from = join(in, file.name);
  const std::string to = join(working, file.name);
  meter.stage(file.name);
  if (file.kind == FileKind::changed) {
    write_text(to, file.original);
    meter.add(file.original.size());
    return;
  }
  if (file.kind == FileKind::copied) {
    const CopiedFile copied = copy_file(from, to, workspace, meter);
    if (copied.bytes != file.bytes || copied.xxh3 != file.xxh3) {
      corrupt(from, fmt::format("it has {} bytes of XXH3 {}: {} says {} of {}", copied.bytes,
                                copied.xxh3, manifest_name, file.bytes, file.xxh3));
    }
    return;
  }
  const PackedFile packed(from);
  packed.require_sound();
  if (packed.file().file_bytes() != file.bytes || packed.seal_digits() != file.xxh3) {
    corrupt(from, fmt::format("it is not the file that {} describes: its header has the checksum "
                              "{}, the manifest {}",
                              manifest_name, packed.seal_digits(), file.xxh3));
  }
  unpack_file(packed, to, workspace, meter);
}

// As packing does: each file is complete before the state names it, and a run that was killed is
// gone on with.
class DirectoryUnpacker {
 public:
  DirectoryUnpacker(const std::string& in, const std::string& out, Workspace& workspace,
                    Meter& meter)
      : in_(in),
        out_(out),
        working_(working_name(out)),
        manifest_(read_manifest(in)),
        workspace_(workspace),
        meter_(meter) {}

  UnpackSummary run(const Stopwatch& stopwatch) {
    UnpackSummary summary;
    summary.bytes_out = original_bytes(in_, manifest_);
    prepare_working(summary.bytes_out);
    meter_.begin(summary.bytes_out);
    for (const FileRecord& file : manifest_.files) {
      finish_file(file);
      ++summary.files;
      summary.bytes_in += file.bytes;
    }
    fs::remove(join(working_, state_name));
    rename_into_place(working_, out_);
    summary.unpack_s = stopwatch.seconds();
    return summary;
  }

 private:
  void prepare_working(std::uint64_t needed) {
    WorkingDirectory opened =
        open_working(in_, out_, unpack_options_text(in_, xxh3_text(manifest_text(manifest_))),
                     needed, [&](const FinishedFile& file) {
                       return is_finished(file, facts_of(file.record.name), working_);
                     });
    lock_ = std::move(opened.lock);
    state_ = std::move(opened.state);
    for (const std::string& name : manifest_.directories) {
      fs::create_directories(join(working_, name));
    }
  }

  // Of a packed file; nothing where it is gone, which then does not compare equal.
  [[nodiscard]] SourceFacts facts_of(const std::string& name) const {
    const std::string path = join(in_, name);
    return fs::exists(path) ? source_facts(path) : SourceFacts{};
  }

  void finish_file(const FileRecord& file) {
    const auto found = state_.files.find(file.name);
    if (found != state_.files.end()) {
      meter_.add(found->second.record.bytes);
      return;
    }
    FinishedFile finished{.source = facts_of(file.name)};
    unpack_one(in_, working_, file, workspace_, meter_);
    finished.record = {.name = file.name,
                       .kind = FileKind::copied,
                       .bytes = source_facts(join(working_, file.name)).bytes,
                       .xxh3 = ""};
    state_.files[file.name] = finished;
    write_state(working_, state_);
  }

  const std::string& in_;
  const std::string& out_;
  const std::string working_;
  const Manifest manifest_;
  Workspace& workspace_;
  Meter& meter_;
  std::unique_ptr<DirectoryLock> lock_;
  PackState state_;
};

class DirectoryVerifier {
 public:
  DirectoryVerifier(const std::string& packed, const std::string& against,
                    const std::string& ignored, Workspace& workspace, Meter& meter)
      : packed_(packed),
        against_(against),
        ignored_(ignored),
        workspace_(workspace),
        meter_(meter) {}

  VerifySummary run() {
    const Stopwatch stopwatch;
    manifest_ = read_manifest(packed_);
    meter_.begin(original_bytes(packed_, manifest_));
    listing_ = list_directory(packed_);
    check_names();
    for (const FileRecord& file : manifest_.files) {
      if (missing_.count(file.name) == 0) check_file(file);
    }
    if (!against_.empty()) check_names_against();
    summary_.verify_s = stopwatch.seconds();
    return summary_;
  }

 private:
  void report(const std::string& file, const std::string& problem) {
    summary_.problems.push_back(fmt::format("{}: {}", printable(file), problem));
  }

  // Files and directories that are missing, were added or renamed.
  void check_names() {
    std::set<std::string> there(listing_.files.begin(), listing_.files.end());
    there.erase(manifest_name);
    there.erase(ignored_);
    for (const FileRecord& file : manifest_.files) {
      if (there.erase(file.name) == 0) missing_.insert(file.name);
    }
    for (const FileRecord& file : manifest_.files) {
      if (missing_.count(file.name) == 0) continue;
      const auto renamed = std::find_if(there.begin(), there.end(), [&](const std::string& name) {
        return is_content(join(packed_, name), file);
      });
      if (renamed == there.end()) {
        report(file.name, "the file is missing");
        continue;
      }
      report(file.name, fmt::format("the file was renamed to {}", printable(*renamed)));
      there.erase(renamed);
    }
    for (const std::string& name : there) report(name, "the file was added after packing");
    const std::set<std::string> known(manifest_.directories.begin(), manifest_.directories.end());
    const std::set<std::string> found(listing_.directories.begin(), listing_.directories.end());
    for (const std::string& name : known) {
      if (found.count(name) == 0) report(name, "the directory is missing");
    }
    for (const std::string& name : found) {
      if (known.count(name) == 0) report(name, "the directory was added after packing");
    }
  }

  bool is_content(const std::string& path, const FileRecord& file) const {
    if (source_facts(path).bytes != file.bytes) return false;
    Meter silent{nullptr};
    try {
      return file.kind == FileKind::packed
                 ? PackedFile(path).seal_digits() == file.xxh3
                 : hash_file(path, "", workspace_, silent).xxh3 == file.xxh3;
    } catch (const Error&) {
      return false;
    }
  }

  void check_file(const FileRecord& file) {
    meter_.stage(file.name);
    const std::string path = join(packed_, file.name);
    const std::string original = original_of(file);
    const std::uint64_t bytes = source_facts(path).bytes;
    if (bytes != file.bytes) {
      report(file.name,
             fmt::format("it has {} bytes: the manifest says {}{}", bytes, file.bytes,
                         bytes > file.bytes ? "; something was appended" : "; it is cut short"));
    }
    if (file.kind == FileKind::packed) {
      verify_file({.path = path,
                   .label = printable(file.name),
                   .against = original,
                   .header_xxh3 = file.xxh3},
                  workspace_, meter_, summary_);
      return;
    }
    ++summary_.files;
    summary_.bytes += bytes;
    const bool copied = file.kind == FileKind::copied;
    const HashedFile found = hash_file(path, copied ? original : "", workspace_, meter_);
    if (found.xxh3 != file.xxh3) {
      report(file.name, fmt::format("it was changed: its XXH3 is {}, the manifest says {}",
                                    found.xxh3, file.xxh3));
    }
    if (found.difference >= 0) {
      report(file.name, fmt::format("it differs from {} at byte {}", original, found.difference));
    }
    if (!copied && !original.empty() &&
        read_text(original, source_facts(original).bytes) != file.original) {
      report(file.name, fmt::format("its original text is not that of {}", original));
    }
  }

  // The file to compare with, or "".
  std::string original_of(const FileRecord& file) {
    if (against_.empty()) return "";
    std::string path = join(against_, file.name);
    if (fs::is_regular_file(path)) return path;
    report(file.name, fmt::format("{} has no such file", against_));
    return "";
  }

  void check_names_against() {
    std::set<std::string> known;
    for (const FileRecord& file : manifest_.files) known.insert(file.name);
    for (const std::string& name : list_directory(against_).files) {
      if (known.count(name) == 0) {
        report(name, fmt::format("the file is in {}, but not in the manifest", against_));
      }
    }
  }

  const std::string& packed_;
  const std::string& against_;
  const std::string& ignored_;
  Workspace& workspace_;
  Meter& meter_;
  Manifest manifest_;
  Listing listing_;
  std::set<std::string> missing_;
  VerifySummary summary_;
};

}  // namespace

UnpackSummary unpack_directory(const std::string& in, const std::string& out, Workspace& workspace,
                               Meter& meter) {
  const Stopwatch stopwatch;
  return DirectoryUnpacker(in, out, workspace, meter).run(stopwatch);
}

VerifySummary verify_directory(const std::string& packed, const std::string& against,
                               const std::string& ignored, Workspace& workspace, Meter& meter) {
  return DirectoryVerifier(packed, against, ignored, workspace, meter).run();
}

}  // namespace slimgemm::checkpoint
