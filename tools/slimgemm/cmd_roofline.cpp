// SPDX-License-Identifier: Apache-2.0
// slimgemm roofline: which term binds a linear layer, bytes or math, and by how much.
#include "commands.hpp"
#include "lab/number.hpp"
#include "lab/roofline.hpp"

#include <fmt/format.h>

#include <fstream>
#include <memory>
#include <optional>
#include <slimgemm/error.hpp>
#include <string>

namespace slimgemm::cli {
namespace {

struct RooflineOptions {
  std::string layer;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string m = "1,8,16,32,128,256";
  std::optional<double> weight_bits;
  std::optional<double> out_bits;
  std::string gpu = "h200";
  std::optional<double> bandwidth_tb_s;
  std::optional<double> peak_tflop_s;
  std::string svg_path;
};

lab::Matmul matmul_for(const RooflineOptions& options, std::int64_t m) {
  lab::Matmul matmul;
  if (options.layer.empty()) {
    matmul = {options.n, options.k, m};
    matmul.weight_bits = options.weight_bits.value_or(16);
    matmul.out_bits = matmul.weight_bits == 32 ? 32 : 16;
  } else {
    matmul = lab::layer_matmul(lab::layer_named(options.layer), m);
    matmul.weight_bits = options.weight_bits.value_or(matmul.weight_bits);
  }
  matmul.out_bits = options.out_bits.value_or(matmul.out_bits);
  return matmul;
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    throw Error(
        ErrorCode::io_error,
        fmt::format("'{}' cannot be written; give --svg a path in a folder that exists", path));
  }
}

int run_roofline(const RooflineOptions& options) {
  lab::RooflineQuery query;
  query.title = options.layer;
  query.gpu = lab::choose_gpu(options.gpu, options.bandwidth_tb_s, options.peak_tflop_s);
  for (const std::int64_t m : lab::parse_m_list(options.m)) {
    query.matmuls.push_back(matmul_for(options, m));
  }
  const std::string text = lab::roofline_text(query);
  if (!options.svg_path.empty()) {
    write_text(options.svg_path, lab::roofline_svg(query));
  }
  fmt::print("{}", text);
  return exit_ok;
}

}  // namespace

void add_roofline(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<RooflineOptions>();
  CLI::App* command = app.add_subcommand(
      "roofline", "Say which bound a linear layer has, memory or math, and how far");
  CLI::Option* layer =
      command->add_option("--layer", options->layer,
                          "One of the judge's layers: qkv_gate, o, pooler, unpooler, router");
  CLI::Option* n = command->add_option("--n", options->n, "Rows of W (output features)");
  CLI::Option* k = command->add_option("--k", options->k, "Columns of W (input features)");
  n->needs(k)->excludes(layer);
  k->needs(n)->excludes(layer);
  command->add_option("--m", options->m, "Rows of x, separated by commas")->capture_default_str();
  command->add_option(
      "--dtype-bits", options->weight_bits,
      "Bits a weight takes, such as 16, 12, 32 or 11.3 (default: 16, or the layer's)");
  command->add_option("--out-bits", options->out_bits,
                      "Bits an element of out takes (default: 16; 32 with 32-bit weights)");
  command->add_option("--gpu", options->gpu, "h200, h100 or custom")->capture_default_str();
  command->add_option("--bandwidth", options->bandwidth_tb_s,
                      "Memory bandwidth in TB/s, in place of the GPU's");
  command->add_option("--flops", options->peak_tflop_s,
                      "Peak rate in TFLOP/s, in place of the GPU's");
  command->add_option("--svg", options->svg_path, "Also draw the roofline to this file");
  command->callback([options, layer, n, &exit_code] {
    if (layer->count() == 0 && n->count() == 0) {
      throw CLI::RequiredError("--layer, or --n and --k");
    }
    exit_code = run_roofline(*options);
  });
}

}  // namespace slimgemm::cli
