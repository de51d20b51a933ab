// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint.hpp"
#include "checkpoint_text.hpp"
#include "cmd_common.hpp"
#include "commands.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <memory>
#include <string>

namespace slimgemm::cli {
namespace {

struct PackArguments {
  std::string in;
  std::string out;
  checkpoint::PackCheckpointOptions options;
  bool no_verify = false;
  bool list = false;
  bool quiet = false;
};

int run_pack(PackArguments& arguments) {
  arguments.options.verify = !arguments.no_verify;
  checkpoint::PackSummary summary;
  {
    checkpoint::Meter meter = make_meter(arguments.quiet);
    summary = checkpoint::pack_checkpoint(arguments.in, arguments.out, arguments.options, meter);
  }
  fmt::print("{}", pack_text(summary, arguments.list));
  fmt::print("packed{}", rate_text(summary.bytes_in, summary.pack_s));
  if (arguments.options.verify) {
    fmt::print(", verified{}", rate_text(summary.bytes_in, summary.verify_s));
  }
  fmt::print(": {}\n", for_terminal(arguments.out));
  return exit_ok;
}

}  // namespace

void add_pack(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "pack",
      "Pack the BF16 weights of a checkpoint losslessly at 12 bits: a .safetensors file, or a "
      "model "
      "directory with its shards. `slimgemm unpack` gives back the same files, byte for byte");
  const auto arguments = std::make_shared<PackArguments>();
  command->add_option("IN", arguments->in, "a .safetensors file or a model directory; only read")
      ->required();
  command
      ->add_option("OUT", arguments->out,
                   "the packed file or directory, which must not exist yet. The work goes on in "
                   "OUT.partial; run the same command again to resume it")
      ->required();
  checkpoint::SelectOptions& select = arguments->options.select;
  command->add_option("--include", select.include,
                      "pack tensors of these names, too (globs: \"*.embed_tokens.weight\"). By "
                      "default: matrices named *.weight and stacks of experts, no embeddings");
  command->add_option("--exclude", select.exclude,
                      "keep tensors of these names as they are (globs)");
  command->add_flag("--fp16", select.fp16,
                    "pack FP16 matrices, too, where all values are BF16 values (as in models that "
                    "were BF16 before); others stay as they are");
  command->add_flag("--fp32", select.fp32,
                    "store FP32 matrices in tile order, too; this saves no bytes");
  command
      ->add_option("--max-exception-rate", arguments->options.codec.max_exception_rate,
                   "a matrix in which a larger share of the weights lies outside any 16 exponents "
                   "stays at 16 bits a weight")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->add_flag("--no-verify", arguments->no_verify,
                    "do not read and check what was written before it gets its name");
  command->add_flag("--list", arguments->list, "name every tensor that was kept");
  command->add_flag("--quiet", arguments->quiet, "show no progress");
  command->callback([arguments, &exit_code] { exit_code = run_pack(*arguments); });
}

void add_unpack(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::string in;
    std::string out;
    bool quiet = false;
  };
  CLI::App* command = app.add_subcommand(
      "unpack",
      "Give back the original of a packed checkpoint, byte for byte, and check every byte");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("PACKED", arguments->in, "what `slimgemm pack` wrote; only read")->required();
  command->add_option("OUT", arguments->out, "the file or directory to make; it must not exist yet")
      ->required();
  command->add_flag("--quiet", arguments->quiet, "show no progress");
  command->callback([arguments, &exit_code] {
    checkpoint::UnpackSummary summary;
    {
      checkpoint::Meter meter = make_meter(arguments->quiet);
      summary = checkpoint::unpack_checkpoint(arguments->in, arguments->out, meter);
    }
    fmt::print("{} -> {}\nunpacked{}: {}\n", bytes_text(summary.bytes_in),
               bytes_text(summary.bytes_out), rate_text(summary.bytes_out, summary.unpack_s),
               for_terminal(arguments->out));
    exit_code = exit_ok;
  });
}

void add_verify(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::string packed;
    std::string against;
    bool quiet = false;
  };
  CLI::App* command = app.add_subcommand(
      "verify",
      "Check every byte of a packed checkpoint and name what is wrong; writes nothing, and needs "
      "neither a GPU nor the original. Exit code 1 if something is wrong");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("PACKED", arguments->packed, "a packed file or directory")->required();
  command->add_option("--against", arguments->against,
                      "the original file or directory: compare with it byte for byte");
  command->add_flag("--quiet", arguments->quiet, "show no progress");
  command->callback([arguments, &exit_code] {
    checkpoint::VerifySummary summary;
    try {
      checkpoint::Meter meter = make_meter(arguments->quiet);
      summary = checkpoint::verify_checkpoint(arguments->packed, arguments->against, meter);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::corrupt_data) throw;
      // Damaged where nothing after it can be trusted, such as a header or the manifest.
      fmt::print("{}\n", for_terminal(error.what()));
      exit_code = exit_failed;
      return;
    }
    for (const std::string& problem : summary.problems) {
      fmt::print("{}\n", for_terminal(problem));
    }
    fmt::print("{} files, {} tensors, {} read{}: {}\n", summary.files, summary.tensors,
               bytes_text(summary.bytes), rate_text(summary.bytes, summary.verify_s),
               summary.problems.empty()
                   ? (arguments->against.empty() ? "every byte is sound"
                                                 : "every byte is sound and as in the original")
                   : fmt::format("{} problems", summary.problems.size()));
    exit_code = summary.problems.empty() ? exit_ok : exit_failed;
  });
}

}  // namespace slimgemm::cli
