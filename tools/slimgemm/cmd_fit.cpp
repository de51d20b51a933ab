// SPDX-License-Identifier: Apache-2.0
// slimgemm fit: whether a model fits a GPU, and how much is left for the KV cache.
#include "cmd_common.hpp"
#include "commands.hpp"
#include "inspect/fit.hpp"
#include "lab/roofline.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

namespace slimgemm::cli {
namespace {

constexpr double memory_max_gb = 1e6;

struct FitArguments {
  std::string path;
  std::string gpu = "h200";
  std::optional<double> memory_gb;
  inspect::FitQuery query;
  std::uint64_t context = 0;  // 0: as the config allows
  int kv_bits = 16;
  bool as_json = false;
};

int run_fit(FitArguments arguments) {
  inspect::FitQuery& query = arguments.query;
  const lab::Gpu gpu = lab::named_gpu(arguments.gpu);
  query.gpu = gpu.name;
  query.memory_bytes = gpu.memory_bytes;
  if (arguments.memory_gb) {
    if (!(*arguments.memory_gb > 0 && *arguments.memory_gb <= memory_max_gb)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--memory is {:g} GB; it must be above 0 and at most {:g}",
                              *arguments.memory_gb, memory_max_gb));
    }
    query.gpu = "GPU";
    query.memory_bytes = static_cast<std::uint64_t>(*arguments.memory_gb * 1e9);
  }
  if (arguments.context != 0) query.context = arguments.context;
  query.kv_bytes = static_cast<std::uint64_t>(arguments.kv_bits) / 8;
  const inspect::Model model(arguments.path);
  const inspect::FitResult result = inspect::fit(model, query);
  fmt::print("{}", arguments.as_json ? inspect::fit_json(model, query, result)
                                     : for_terminal(inspect::fit_text(model, query, result)));
  return exit_ok;
}

}  // namespace

void add_fit(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("fit", "Say whether a model fits a GPU, unpacked and packed");
  command->footer(
      "Looks at the headers of the model's files and at its config.json alone, so it answers at\n"
      "once: how much memory the weights take, and how many tokens of how many sequences the rest\n"
      "holds. (A sequence is one conversation; the KV cache is what attention keeps of each token\n"
      "in it.) Everything assumed is listed.\n\n"
      "  slimgemm fit model/\n"
      "  slimgemm fit model/ --gpu h200 --context 32768 --batch 16");
  auto arguments = std::make_shared<FitArguments>();
  command
      ->add_option("model", arguments->path,
                   "A model's directory, or a .safetensors file; packed or not")
      ->required();
  command->add_option("--gpu", arguments->gpu, "h200 or h100")
      ->check(CLI::IsMember({"h200", "h100"}))
      ->capture_default_str();
  command->add_option("--memory", arguments->memory_gb,
                      "Memory of another GPU, in GB (10^9 bytes), in place of --gpu");
  command
      ->add_option("--context", arguments->context,
                   "Tokens of a sequence (default: the most that config.json allows)")
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", arguments->query.batch, "Sequences at the same time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--kv-bits", arguments->kv_bits, "Bits of an element of the KV cache")
      ->check(CLI::IsMember({8, 16}))
      ->capture_default_str();
  command
      ->add_option("--memory-share", arguments->query.memory_share,
                   "Share of the memory for weights and KV cache; the rest is for the engine")
      ->capture_default_str();
  command->add_flag("--json", arguments->as_json, "Print JSON, for programs, in place of text");
  command->callback([arguments, &exit_code] { exit_code = run_fit(*arguments); });
}

}  // namespace slimgemm::cli
