// SPDX-License-Identifier: Apache-2.0
// slimgemm inspect: what a checkpoint holds, and what packing it brings.
#include "cmd_common.hpp"
#include "commands.hpp"
#include "inspect/inspection_report.hpp"
#include "judge/progress.hpp"
#include "judge/report.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <string>

namespace slimgemm::cli {
namespace {

constexpr std::size_t stage_columns = 44;
// Work that is done by then needs no progress.
constexpr std::chrono::seconds silent_time{1};

struct InspectArguments {
  std::string path;
  std::string tensor;
  std::string gpu = "h200";
  std::string html;
  bool as_json = false;
};

// The end of a long name tells more than its beginning.
std::string stage_text(const std::string& name) {
  std::string text = checkpoint::printable(name);
  if (text.size() > stage_columns) text = "..." + text.substr(text.size() - stage_columns + 3);
  return text;
}

// A page may take the place of a page, never of a model.
void require_page_or_nothing(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (path.empty() || !file) return;
  std::string begin(9, '\0');
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin == "<!doctype" || begin == "<!DOCTYPE") return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("--html is {}: that exists and is no HTML page; choose another name", path));
}

int run_inspect(const InspectArguments& arguments) {
  require_folder("--html", arguments.html);
  require_page_or_nothing(arguments.html);
  inspect::InspectOptions options;
  options.tensor = arguments.tensor;
  options.gpu = lab::named_gpu(arguments.gpu);
  const inspect::Model model(arguments.path);
  inspect::Inspection inspection;
  {
    judge::Progress progress(stderr, isatty(STDERR_FILENO) != 0);
    const auto start = std::chrono::steady_clock::now();
    options.progress = [&](const std::string& tensor, double done) {
      if (std::chrono::steady_clock::now() - start < silent_time) return;
      progress.update(for_terminal(stage_text(tensor)), done);
    };
    inspection = inspect::inspect(model, options);
  }
  const bool single = !arguments.tensor.empty();
  if (!arguments.html.empty()) {
    judge::write_file(arguments.html, inspect::inspection_html(model, inspection, single));
  }
  fmt::print("{}", arguments.as_json
                       ? inspect::inspection_json(model, inspection)
                       : for_terminal(inspect::inspection_text(model, inspection, single)));
  return exit_ok;
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("inspect", "Say what packing a model brings: bits, bytes, time a token");
  command->footer(
      "Reads every weight that slimgemm pack would pack (or has packed), counts exponents, and "
      "says\n"
      "for each tensor how many bits a weight takes packed, how many weights 12 bits do not\n"
      "express, and how far that is from the least possible. Writes nothing but what --html "
      "names.\n"
      "The model need not fit in memory.\n\n"
      "  slimgemm inspect model/                        a directory as downloaded\n"
      "  slimgemm inspect model/ --html report.html     the same with charts\n"
      "  slimgemm inspect model.safetensors --tensor model.layers.0.mlp.up_proj.weight");
  auto arguments = std::make_shared<InspectArguments>();
  command
      ->add_option("model", arguments->path,
                   "A .safetensors file, or a model's directory; packed or not")
      ->required();
  command->add_option("--tensor", arguments->tensor,
                      "This tensor alone, with every exponent it has; also one that pack keeps");
  command->add_option("--gpu", arguments->gpu, "For the cost of a token: h200 or h100")
      ->check(CLI::IsMember({"h200", "h100"}))
      ->capture_default_str();
  command->add_flag("--json", arguments->as_json, "Print JSON, for programs, in place of text");
  command->add_option("--html", arguments->html, "Also write a page with charts to this file");
  command->callback([arguments, &exit_code] { exit_code = run_inspect(*arguments); });
}

}  // namespace slimgemm::cli
