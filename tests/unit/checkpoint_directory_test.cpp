// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/manifest.hpp"
#include "checkpoint/pack_state.hpp"
#include "checkpoint/safetensors_file.hpp"
#include "checkpoint/xxh3.hpp"
#include "unit/checkpoint_test_support.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <map>

namespace slimgemm::checkpoint::test {
namespace {

constexpr const char* shard1 = "model-00001-of-00002.safetensors";
constexpr const char* shard2 = "model-00002-of-00002.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

class CheckpointDirectory : public CheckpointTest {
 protected:
  void SetUp() override {
    CheckpointTest::SetUp();
    write_file(path("m/" + std::string(shard1)), whole_file().text());
    write_file(path("m/" + std::string(shard2)),
               FileBuilder().add_bf16("lm_head.weight", {64, 192}).text());
    write_file(path("m/" + std::string(index_name)),
               R"({"metadata": {"total_size": 1}, "weight_map": {"layers.0.odd.weight": ")" +
                   std::string(shard1) + R"(", "layers.0.norm.weight": ")" + shard1 +
                   R"(", "lm_head.weight": ")" + shard2 + R"("}, "other": [1.50]})");
    write_file(path("m/config.json"), "{ \"hidden_size\" : 64,\n\t\"eps\": 1e-06 }\n");
    write_file(path("m/tokenizer.json"), "{}");
    write_file(path("m/sub/notes.txt"), "");
    write_file(path("m/norms.safetensors"), FileBuilder().add_bf16("norm.weight", {64}).text());
    fs::create_directories(path("m/sub/empty"));
  }

  static std::map<std::string, std::string> tree(const std::string& root) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
      const std::string name = entry.path().lexically_relative(root).string();
      files[name] = entry.is_directory() ? "(directory)" : read_file(entry.path());
    }
    return files;
  }

  // Changes one file of the packed directory, verifies, and expects the sentence.
  template <class Change>
  void expect_problem(const std::string& part, const Change& change) {
    fs::remove_all(path("q"));
    fs::copy(path("p"), path("q"), fs::copy_options::recursive);
    change();
    expect_contains(joined_problems("q"), part);
  }
  void append(const std::string& name) const {
    std::ofstream(path(name), std::ios::binary | std::ios::app) << "x";
  }
};

TEST_F(CheckpointDirectory, ComesBackByteForByte) {
  const auto before = tree(path("m"));
  const PackSummary summary = pack("m", "p/");
  EXPECT_EQ(summary.files, 2U);
  EXPECT_EQ(summary.files_copied, 5U);
  EXPECT_EQ(joined_problems("p"), "");
  EXPECT_EQ(joined_problems("p", "m"), "");
  unpack("p", "u");
  EXPECT_TRUE(tree(path("u")) == before);
  EXPECT_TRUE(tree(path("m")) == before);
  EXPECT_EQ(read_file(path("p/norms.safetensors")), before.at("norms.safetensors"));
  EXPECT_FALSE(fs::exists(path("p.partial")));
  EXPECT_FALSE(fs::exists(path("p/slimgemm.partial.json")));
}

TEST_F(CheckpointDirectory, LoadersFindWhatTheyLookFor) {
  pack("m", "p");
  const std::string index = read_file(path("p/" + std::string(index_name)));
  expect_contains(index, "\"layers.0.odd.weight_packed\": \"model-00001");
  expect_contains(index, "\"layers.0.norm.weight\": \"model-00001");
  expect_contains(index, "\"lm_head.weight_packed\": \"model-00002");
  const std::uint64_t total =
      SafetensorsFile(path("p/" + std::string(shard1))).header().data_bytes() +
      SafetensorsFile(path("p/" + std::string(shard2))).header().data_bytes();
  expect_contains(index, "\"total_size\": " + std::to_string(total));
  const std::string config = read_file(path("p/config.json"));
  expect_contains(config, "\"quant_method\": \"slimgemm\"");
  expect_contains(config, "\"hidden_size\": 64");
}

TEST_F(CheckpointDirectory, FollowsLinks) {
  fs::create_directories(path("blobs"));
  for (const char* name : {shard1, "config.json"}) {
    fs::rename(path("m/" + std::string(name)), path("blobs/" + std::string(name)));
    fs::create_symlink(path("blobs/" + std::string(name)), path("m/" + std::string(name)));
  }
  const auto before = tree(path("m"));
  pack("m", "p");
  unpack("p", "u");
  EXPECT_TRUE(tree(path("u")) == before);
  EXPECT_FALSE(fs::is_symlink(path("u/" + std::string(shard1))));

  fs::create_symlink("none", path("m/dangling"));
  expect_error(ErrorCode::io_error, "a link that leads nowhere", [&] { pack("m", "q"); });
  fs::remove(path("m/dangling"));
  fs::create_directory_symlink("..", path("m/sub/up"));
  expect_error(ErrorCode::io_error, "leads back to a directory above it", [&] { pack("m", "q"); });
  fs::remove(path("m/sub/up"));
  ASSERT_EQ(mkfifo(path("m/pipe").c_str(), 0666), 0);
  expect_error(ErrorCode::io_error, "neither a file nor a directory", [&] { pack("m", "q"); });
}

TEST_F(CheckpointDirectory, NamesEveryKindOfDamage) {
  pack("m", "p");
  const std::string tensors = "q/" + std::string(shard2);
  expect_problem("tokenizer.json: it was changed: its XXH3 is",
                 [&] { write_file(path("q/tokenizer.json"), "[]"); });
  expect_problem("it has 3 bytes: the manifest says 2; something was appended",
                 [&] { append("q/tokenizer.json"); });
  expect_problem("something was appended", [&] { append(tensors); });
  expect_problem("it is cut short",
                 [&] { fs::resize_file(path(tensors), fs::file_size(path(tensors)) - 1); });
  expect_problem("config.json: it was changed", [&] { append("q/config.json"); });
  expect_problem("tokenizer.json: the file is missing",
                 [&] { fs::remove(path("q/tokenizer.json")); });
  expect_problem("model-00002-of-00002.safetensors: the file was renamed to b.safetensors",
                 [&] { fs::rename(path(tensors), path("q/b.safetensors")); });
  expect_problem("tokenizer.json: the file was renamed to t.json",
                 [&] { fs::rename(path("q/tokenizer.json"), path("q/t.json")); });
  expect_problem("new.txt: the file was added after packing",
                 [&] { write_file(path("q/new.txt"), "new"); });
  expect_problem("sub/empty: the directory is missing", [&] { fs::remove(path("q/sub/empty")); });
  expect_problem("more: the directory was added", [&] { fs::create_directory(path("q/more")); });
  // Another packed file, sound by itself, in the place of the one that was packed.
  expect_problem("its header has the checksum", [&] {
    write_file(path("other"), FileBuilder().add_bf16("lm_head.weight", {64, 192}, 7).text());
    fs::remove(path(tensors));
    pack("other", tensors);
  });
}

TEST_F(CheckpointDirectory, DamageStopsUnpacking) {
  pack("m", "p");
  append("p/tokenizer.json");
  expect_error(ErrorCode::corrupt_data, "tokenizer.json: it has 3 bytes of XXH3",
               [&] { unpack("p", "u"); });
  EXPECT_FALSE(fs::exists(path("u")));
  expect_error(ErrorCode::corrupt_data, "tokenizer.json: it has 3 bytes of XXH3",
               [&] { unpack("p", "u"); });
  fs::copy_file(path("m/tokenizer.json"), path("p/tokenizer.json"),
                fs::copy_options::overwrite_existing);
  unpack("p", "u");  // goes on where the first run ended
  EXPECT_EQ(read_file(path("u/tokenizer.json")), read_file(path("m/tokenizer.json")));
  EXPECT_FALSE(fs::exists(path("u.partial")));
  EXPECT_FALSE(fs::exists(path("u/slimgemm.partial.json")));
}

TEST_F(CheckpointDirectory, ResumesAnInterruptedUnpacking) {
  pack("m", "p");
  struct Stop {};
  Meter stopping([&](const std::string& stage, std::uint64_t, std::uint64_t) {
    if (stage == shard2) throw Stop{};
  });
  EXPECT_THROW(unpack_checkpoint(path("p"), path("u"), stopping), Stop);
  ASSERT_TRUE(fs::exists(path("u.partial/" + std::string(shard1))));
  write_file(path("u.partial/left.over"), "x");
  const auto written = fs::last_write_time(path("u.partial/" + std::string(shard1)));
  unpack("p", "u");
  EXPECT_EQ(fs::last_write_time(path("u/" + std::string(shard1))), written);
  for (const char* shard : {shard1, shard2}) {
    EXPECT_EQ(read_file(path("u/" + std::string(shard))),
              read_file(path("m/" + std::string(shard))));
  }
  EXPECT_FALSE(fs::exists(path("u/left.over")));
  EXPECT_FALSE(fs::exists(path("u/slimgemm.partial.json")));
  // What is not ours stays untouched.
  fs::create_directory(path("v.partial"));
  write_file(path("v.partial/mine"), "x");
  expect_error(ErrorCode::invalid_argument, "no interrupted run's", [&] { unpack("p", "v"); });
  EXPECT_EQ(read_file(path("v.partial/mine")), "x");
}

TEST_F(CheckpointDirectory, ARunKilledAtOnceIsGoneOnWith) {
  fs::create_directory(path("p.partial"));
  write_file(path("p.partial/slimgemm.partial.json.new"), "{\"opt");
  pack("m", "p");
  EXPECT_FALSE(fs::exists(path("p/slimgemm.partial.json.new")));
}

TEST_F(CheckpointDirectory, ComparesWithTheOriginal) {
  pack("m", "p");
  write_file(path("m/tokenizer.json"), "[]");
  write_file(path("m/added"), "");
  fs::remove(path("m/sub/notes.txt"));
  const std::string found = joined_problems("p", "m");
  expect_contains(found,
                  "tokenizer.json: it differs from " + path("m/tokenizer.json") + " at byte 0");
  expect_contains(found, "added: the file is in " + path("m") + ", but not in the manifest");
  expect_contains(found, "sub/notes.txt: " + path("m") + " has no such file");
  write_file(path("m/config.json"), "{}");
  expect_contains(joined_problems("p", "m"), "config.json: its original text is not that of");
  expect_error(ErrorCode::invalid_argument, "both must be files, or both directories",
               [&] { problems("p", "m/tokenizer.json"); });
}

TEST_F(CheckpointDirectory, RefusesManifestsThatLie) {
  pack("m", "p");
  const std::string sound = read_file(path("p/slimgemm.json"));
  const auto expect_refusal = [&](const std::string& from, const std::string& to,
                                  const std::string& part) {
    std::string text = sound;
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    const std::string key = "\"manifest_xxh3\": \"";
    if (const std::size_t seal_at = text.find(key); seal_at != std::string::npos) {
      text.replace(seal_at + key.size(), unsealed.size(), unsealed);
      seal(text, manifest_seal_key);
    }
    write_file(path("p/slimgemm.json"), text);
    expect_error(ErrorCode::corrupt_data, part, [&] { problems("p"); });
    expect_error(ErrorCode::corrupt_data, part, [&] { unpack("p", "u"); });
  };
  expect_refusal("\"format\": \"1\"", "\"format\": \"2\"", "it is of format 2: this build reads");
  expect_refusal("tokenizer.json", "../outside.json",
                 "the file name ../outside.json is not allowed");
  expect_refusal("tokenizer.json", "/outside.json", "the file name /outside.json is not allowed");
  expect_refusal("tokenizer.json", "slimgemm.json", "the file name slimgemm.json is not allowed");
  expect_refusal("tokenizer.json", "config.json", "it names config.json twice");
  expect_refusal("\"kind\": \"copied\"", "\"kind\": \"new\"",
                 "it must be packed, copied or changed");
  expect_refusal("\"manifest_xxh3\"", "\"manifest_xxh4\"", "its checksum manifest_xxh3 is missing");
  expect_refusal("{\n", "[{\n", "it is not a JSON object");
  std::string text = sound;
  text.replace(text.find("tokenizer"), 9, "tokenized");
  write_file(path("p/slimgemm.json"), text);
  expect_error(ErrorCode::corrupt_data, "it was changed after it was written",
               [&] { problems("p"); });
  fs::remove(path("p/slimgemm.json"));
  expect_error(ErrorCode::corrupt_data, "it is not a packed directory: it has no slimgemm.json",
               [&] { problems("p"); });
}

TEST_F(CheckpointDirectory, RefusesWhatItCannotPack) {
  expect_error(ErrorCode::invalid_argument, "lies inside", [&] { pack("m", "m/p"); });
  pack("m", "p");
  expect_error(ErrorCode::invalid_argument, "is packed already", [&] { pack("p", "q"); });
  const std::string config = read_file(path("m/config.json"));
  write_file(path("m/config.json"), R"({"quantization_config": {"quant_method": "fp8"}})");
  expect_error(ErrorCode::invalid_argument, "the model is quantized already",
               [&] { pack("m", "q"); });
  write_file(path("m/config.json"), config);
  PackCheckpointOptions options;
  options.select.exclude = {"nothing*"};
  expect_error(ErrorCode::invalid_argument, "no tensor of", [&] { pack("m", "q", options); });
  options.select.exclude = {"*"};
  expect_error(ErrorCode::invalid_argument, "has no tensor to pack",
               [&] { pack("m", "q", options); });
  fs::remove(path("m/" + std::string(shard2)));
  expect_error(ErrorCode::corrupt_data, "names the shard model-00002-of-00002.safetensors, which",
               [&] { pack("m", "q"); });
  write_file(path("m/" + std::string(shard2)), FileBuilder().add_bf16("x", {3}).text());
  expect_error(ErrorCode::corrupt_data, "says that lm_head.weight is in", [&] { pack("m", "q"); });
  write_file(path("m/" + std::string(shard2)), whole_file().text().substr(0, 5000));
  expect_error(ErrorCode::corrupt_data, "the file is cut short", [&] { pack("m", "q"); });
  EXPECT_FALSE(fs::exists(path("q")));
}

TEST_F(CheckpointDirectory, ResumesAnInterruptedRun) {
  // The first run ends at the second shard, which turns out to be another file than planned.
  struct Stop {};
  Meter stopping([&](const std::string& stage, std::uint64_t, std::uint64_t) {
    if (stage == shard2) throw Stop{};
  });
  EXPECT_THROW(pack_checkpoint(path("m"), path("p"), {}, stopping), Stop);
  EXPECT_FALSE(fs::exists(path("p")));
  ASSERT_TRUE(fs::exists(path("p.partial/" + std::string(shard1))));
  write_file(path("p.partial/left.over"), "x");
  const auto written = fs::last_write_time(path("p.partial/" + std::string(shard1)));

  const PackSummary summary = pack("m", "p");
  EXPECT_EQ(summary.files_reused, 1U);
  EXPECT_EQ(fs::last_write_time(path("p/" + std::string(shard1))), written);
  EXPECT_EQ(joined_problems("p", "m"), "");
  const PackSummary whole = pack("m", "q");
  EXPECT_EQ(whole.files_reused, 0U);
  EXPECT_TRUE(tree(path("p")) == tree(path("q")));
  EXPECT_EQ(whole.weights_packed, summary.weights_packed);
  EXPECT_EQ(whole.packed_bytes, summary.packed_bytes);
  EXPECT_EQ(whole.kept.size(), summary.kept.size());
}

TEST_F(CheckpointDirectory, ReusesNothingThatHasChanged) {
  struct Stop {};
  const auto interrupt = [&] {
    fs::remove_all(path("p.partial"));
    fs::remove_all(path("p"));
    Meter stopping([&](const std::string& stage, std::uint64_t, std::uint64_t) {
      if (stage == shard2) throw Stop{};
    });
    EXPECT_THROW(pack_checkpoint(path("m"), path("p"), {}, stopping), Stop);
  };
  interrupt();  // a damaged shard
  {
    std::fstream file(path("p.partial/" + std::string(shard1)),
                      std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(100);
    file << "X";
  }
  EXPECT_EQ(pack("m", "p").files_reused, 0U);
  interrupt();  // other options
  PackCheckpointOptions options;
  options.select.exclude = {"*.up"};
  EXPECT_EQ(pack("m", "p", options).files_reused, 0U);
  interrupt();  // another source
  write_file(path("m/" + std::string(shard1)), whole_file().text());
  EXPECT_EQ(pack("m", "p").files_reused, 0U);
  EXPECT_EQ(joined_problems("p", "m"), "");

  fs::remove_all(path("p"));
  write_file(path("p.partial/mine.txt"), "x");
  expect_error(ErrorCode::invalid_argument, "exists and is no interrupted run's",
               [&] { pack("m", "p"); });
  EXPECT_TRUE(fs::exists(path("p.partial/mine.txt")));
}

}  // namespace
}  // namespace slimgemm::checkpoint::test
