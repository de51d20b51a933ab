// SPDX-License-Identifier: Apache-2.0
// First everything is looked at that can be without reading tensors: names, headers, indices,
// space. Then the files are written one by one, each complete before the state file names it.
#include "checkpoint/directory.hpp"
#include "checkpoint/directory_jobs.hpp"
#include "checkpoint/errors.hpp"
#include "checkpoint/file_io.hpp"
#include "checkpoint/manifest.hpp"
#include "checkpoint/model_files.hpp"
#include "checkpoint/pack_state.hpp"
#include "checkpoint/packed_file.hpp"
#include "checkpoint/packed_header.hpp"
#include "checkpoint/stopwatch.hpp"
#include "checkpoint/xxh3.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

namespace slimgemm::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t json_bytes_max = 1'000'000'000;

// One safetensors file, as far as its header says.
struct PlannedShard {
  bool packs = false;  // some tensor is selected; otherwise the file is copied
  SourceFacts source;
  std::set<std::string, std::less<>> names;
  std::uint64_t tensor_bytes = 0;
  std::vector<KeptTensor> kept;
  std::vector<std::string> packed_names;
};

class DirectoryPacker {
 public:
  DirectoryPacker(const std::string& in, const std::string& out,
                  const PackCheckpointOptions& options, Workspace& workspace, Meter& meter)
      : in_(in),
        out_(out),
        working_(working_name(out)),
        options_(options),
        workspace_(workspace),
        meter_(meter) {}

  PackSummary run() {
    const Stopwatch stopwatch;
    plan();
    prepare_working();
    for (const std::string& name : listing_.files) {
      if (name != config_name && !is_index(name)) finish_file(name);
    }
    for (const std::string& name : listing_.files) {
      if (name == config_name || is_index(name)) change_file(name);
    }
    write_text(join(working_, manifest_name), manifest_text(manifest_));
    summary_.bytes_out += source_facts(join(working_, manifest_name)).bytes;
    summary_.pack_s = stopwatch.seconds();
    if (options_.verify) verify();
    fs::remove(join(working_, state_name));
    rename_into_place(working_, out_);
    return summary_;
  }

 private:
  static constexpr const char* config_name = "config.json";

  void plan() {
    listing_ = list_directory(in_);
    if (std::find(listing_.files.begin(), listing_.files.end(), manifest_name) !=
        listing_.files.end()) {
      refuse(fmt::format("{} is packed already: it has a {}", in_, manifest_name));
    }
    const std::string config = join(in_, config_name);
    if (fs::exists(config)) {
      const std::string text = read_text(config, json_bytes_max);
      if (!changed_config(text, config)) {  // which refuses what is quantized already
        throw Error(ErrorCode::corrupt_data,
                    fmt::format("{} is not JSON (NaN and Infinity are not, either): without the "
                                "entry that belongs there no loader would know the packed model",
                                config));
      }
      options_.select.tied_embeddings |= has_tied_embeddings(text);
    }
    std::set<std::string> unmatched(options_.select.include.begin(), options_.select.include.end());
    unmatched.insert(options_.select.exclude.begin(), options_.select.exclude.end());
    std::uint64_t total = 0;
    for (const std::string& name : listing_.files) {
      const SourceFacts facts = source_facts(join(in_, name));
      total += facts.bytes;
      if (is_safetensors(name)) {
        plan_shard(name, unmatched);
      } else {
        needed_bytes_ += facts.bytes;
      }
    }
    check_names();
    if (shards_.empty()) refuse(fmt::format("{} has no safetensors files", in_));
    if (!unmatched.empty()) {
      refuse(fmt::format("no tensor of {} matches {}", in_, *unmatched.begin()));
    }
    if (std::none_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard.second.packs; })) {
      refuse(fmt::format("{} has no tensor to pack: {}", in_, why_nothing()));
    }
    for (const std::string& name : listing_.files) {
      if (is_index(name)) check_index(name);
    }
    meter_.begin(total);
  }

  // Names that the packed directory needs for itself, and those that its JSON cannot hold.
  void check_names() const {
    const std::set<std::string> files(listing_.files.begin(), listing_.files.end());
    std::set<std::string> own = {manifest_name, state_name};
    for (const std::string& name : listing_.files) {
      if (name == config_name || is_index(name)) own.insert(name + ".new");
    }
    for (const std::string& name : std::set<std::string>(own)) own.insert(name + ".new");
    for (const auto* names : {&listing_.files, &listing_.directories}) {
      for (const std::string& name : *names) {
        if (own.count(name) != 0) {
          refuse(
              fmt::format("{} has {}, a name that packing uses itself: move it away", in_, name));
        }
        if (!is_utf8(name)) {
          refuse(fmt::format("{} has a file whose name is not UTF-8: {}", in_, printable(name)));
        }
      }
    }
    check_tensor_names();
  }

  // No tensor of any shard has the name that a packed one gets.
  void check_tensor_names() const {
    std::map<std::string_view, std::string_view> shard_of;
    for (const auto& [shard, planned] : shards_) {
      for (const std::string& name : planned.names) shard_of.emplace(name, shard);
    }
    for (const auto& [shard, planned] : shards_) {
      for (const std::string& packed : planned.packed_names) {
        const auto found = shard_of.find(packed);
        if (found == shard_of.end()) continue;
        refuse(fmt::format("{} would get a tensor {}, but {} has one already", join(in_, shard),
                           printable(packed), join(in_, std::string(found->second))));
      }
    }
  }

  void plan_shard(const std::string& name, std::set<std::string>& unmatched) {
    const SafetensorsFile source(join(in_, name));
    const std::vector<Selection> selections = select_all(source.header(), options_.select);
    check_packable(source, selections);
    PlannedShard& shard = shards_[name];
    shard.source = source_facts(join(in_, name));
    shard.source.header_xxh3 = xxh3_text(source.header_text());
    shard.tensor_bytes = source.header().data_bytes();
    for (std::size_t i = 0; i < selections.size(); ++i) {
      const Tensor& tensor = source.header().tensors[i];
      shard.names.insert(tensor.name);
      shard.packs |= selections[i].packed;
      if (selections[i].packed) shard.packed_names.push_back(packed_name(tensor.name));
      if (!selections[i].packed) shard.kept.push_back({tensor.name, selections[i].why});
      std::erase_if(unmatched, [&](const auto& glob) { return matches(glob, tensor.name); });
    }
    needed_bytes_ += shard.packs ? expected_bytes(source, selections) : source.file_bytes();
  }

  std::string why_nothing() const {
    for (const auto& [name, shard] : shards_) {
      if (shard.kept.empty()) continue;
      return fmt::format("{} stays because of: {}", printable(shard.kept.front().name),
                         shard.kept.front().why);
    }
    return "its files hold no tensors";
  }

  // The shard of that name beside the index.
  std::string shard_name(const std::string& index, const std::string& shard) const {
    const auto folder = fs::path(index).parent_path();
    return (folder / shard).lexically_normal().generic_string();
  }

  void check_index(const std::string& name) const {
    const std::string path = join(in_, name);
    for_each_weight(read_text(path, json_bytes_max), path,
                    [&](const std::string& tensor, const std::string& shard) {
                      const auto found = shards_.find(shard_name(name, shard));
                      if (found == shards_.end()) {
                        throw Error(ErrorCode::corrupt_data,
                                    fmt::format("{} names the shard {}, which is missing: the "
                                                "download is not complete",
                                                path, printable(shard)));
                      }
                      if (found->second.names.count(tensor) == 0) {
                        throw Error(ErrorCode::corrupt_data,
                                    fmt::format("{} says that {} is in {}: it is not", path,
                                                printable(tensor), printable(shard)));
                      }
                    });
  }

  void prepare_working() {
    WorkingDirectory opened =
        open_working(in_, out_, options_text(in_, options_), needed_bytes_,
                     [&](const FinishedFile& file) { return is_reusable(file); });
    lock_ = std::move(opened.lock);
    state_ = std::move(opened.state);
    manifest_.directories = listing_.directories;
    for (const std::string& name : listing_.directories) {
      fs::create_directories(join(working_, name));
    }
  }

  [[nodiscard]] bool is_reusable(const FinishedFile& file) const {
    const std::string& name = file.record.name;
    if (!std::binary_search(listing_.files.begin(), listing_.files.end(), name)) return false;
    const auto shard = shards_.find(name);
    return is_finished(
        file, shard == shards_.end() ? source_facts(join(in_, name)) : shard->second.source,
        working_);
  }

  void finish_file(const std::string& name) {
    meter_.stage(name);
    const auto shard = shards_.find(name);
    const bool packs = shard != shards_.end() && shard->second.packs;
    const auto found = state_.files.find(name);
    if (found != state_.files.end()) {
      if (packs) ++summary_.files_reused;
      meter_.add(found->second.source.bytes);
    } else {
      state_.files[name] = packs ? pack_shard(name, shard->second) : copy(name);
      write_state(working_, state_);
    }
    const FinishedFile& file = state_.files.at(name);
    add_sums(file, packs);
    if (packs) add_kept(shard->second, file);
  }

  FinishedFile pack_shard(const std::string& name, const PlannedShard& shard) {
    FinishedFile file{.source = shard.source};
    const SafetensorsFile source(join(in_, name));
    const PackedFileResult result =
        pack_file(source, join(working_, name), options_, workspace_, meter_, file.summary);
    file.record = {.name = name,
                   .kind = FileKind::packed,
                   .bytes = result.file_bytes,
                   .xxh3 = result.header_xxh3};
    file.shard = {result.renamed, result.tensor_bytes};
    return file;
  }

  FinishedFile copy(const std::string& name) {
    FinishedFile file{.source = source_facts(join(in_, name))};
    const auto shard = shards_.find(name);
    if (shard != shards_.end()) {
      file.source = shard->second.source;
      file.shard.tensor_bytes = shard->second.tensor_bytes;
    }
    const CopiedFile copied = copy_file(join(in_, name), join(working_, name), workspace_, meter_);
    file.record = {
        .name = name, .kind = FileKind::copied, .bytes = copied.bytes, .xxh3 = copied.xxh3};
    return file;
  }

  void change_file(const std::string& name) {
    meter_.stage(name);
    const std::string text = read_text(join(in_, name), json_bytes_max);
    std::optional<std::string> changed;
    if (is_index(name)) {
      std::map<std::string, ShardFacts> facts;
      for_each_weight(text, name, [&](const std::string&, const std::string& shard) {
        facts.emplace(shard, state_.files.at(shard_name(name, shard)).shard);
      });
      changed = changed_index(text, facts);
    } else {
      changed = changed_config(text, name);
    }
    if (!changed) {  // not what it seems: it stays as it is
      finish_file(name);
      return;
    }
    write_text(join(working_, name), *changed);
    manifest_.files.push_back({.name = name,
                               .kind = FileKind::changed,
                               .bytes = changed->size(),
                               .xxh3 = xxh3_text(*changed),
                               .original = text});
    ++summary_.files_copied;
    summary_.bytes_in += text.size();
    summary_.bytes_out += changed->size();
    meter_.add(text.size());
  }

  void add_sums(const FinishedFile& file, bool packs) {
    manifest_.files.push_back(file.record);
    summary_.bytes_in += file.source.bytes;
    summary_.bytes_out += file.record.bytes;
    ++(packs ? summary_.files : summary_.files_copied);
    summary_.tensors_packed += file.summary.tensors_packed;
    summary_.weights_packed += file.summary.weights_packed;
    summary_.packed_bytes += file.summary.packed_bytes;
    summary_.exceptions += file.summary.exceptions;
    summary_.raw16_matrices += file.summary.raw16_matrices;
  }

  void add_kept(const PlannedShard& shard, const FinishedFile& file) {
    summary_.kept.insert(summary_.kept.end(), shard.kept.begin(), shard.kept.end());
    std::set<std::string_view> listed;
    for (const KeptTensor& tensor : shard.kept) listed.insert(tensor.name);
    for (const KeptTensor& tensor : file.summary.kept) {  // what only the values showed
      if (listed.count(tensor.name) == 0) summary_.kept.push_back(tensor);
    }
  }

  void verify() {
    const VerifySummary found = verify_directory(working_, "", state_name, workspace_, meter_);
    summary_.verify_s = found.verify_s;
    if (found.problems.empty()) return;
    throw Error(ErrorCode::io_error,
                fmt::format("what was written to {} is not what was packed: {}", working_,
                            found.problems.front()));
  }

  const std::string in_;
  const std::string out_;
  const std::string working_;
  PackCheckpointOptions options_;
  Workspace& workspace_;
  Meter& meter_;
  Listing listing_;
  std::map<std::string, PlannedShard> shards_;
  std::uint64_t needed_bytes_ = 0;
  std::unique_ptr<DirectoryLock> lock_;
  PackState state_;
  Manifest manifest_;
  PackSummary summary_;
};

}  // namespace

PackSummary pack_directory(const std::string& in, const std::string& out,
                           const PackCheckpointOptions& options, Workspace& workspace,
                           Meter& meter) {
  return DirectoryPacker(in, out, options, workspace, meter).run();
}

}  // namespace slimgemm::checkpoint
