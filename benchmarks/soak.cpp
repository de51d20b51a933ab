// SPDX-License-Identifier: Apache-2.0
// Run-to-run bit identity over very many replays of a layer's CUDA graph, while another stream
// keeps the GPU busy. CONTRIBUTING.md describes it.
#include "soak_case.hpp"

#include "judge/executor.hpp"
#include "judge/progress.hpp"
#include "tune/layers.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace slimgemm::bench {
namespace {

enum ExitCode : int { exit_ok = 0, exit_failed = 1, exit_usage = 2 };

constexpr std::int64_t replays_max = 1'000'000'000;

struct Arguments {
  std::int64_t replays = 1'000'000;
  std::vector<std::string> layers;
  int cuda_device = 0;
};

std::vector<SoakCase> choose_cases(const std::vector<std::string>& layers) {
  std::vector<SoakCase> cases = {{judge::info(judge::Layer::o), 1},
                                 {judge::info(judge::Layer::qkv_gate), 16, true},
                                 {judge::info(judge::Layer::router), 1, true},
                                 {judge::info(judge::Layer::unpooler), 32}};
  if (layers.empty()) return cases;
  std::vector<SoakCase> chosen;
  for (const std::string& name : layers) {
    bool found = false;
    for (const SoakCase& c : cases) {
      if (c.layer.name != name) continue;
      chosen.push_back(c);
      found = true;
    }
    if (!found) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("--layers has {}: it must be of o, qkv_gate, router, unpooler", name));
    }
  }
  return chosen;
}

void print(const Soak& soak, const SoakOutcome& outcome) {
  fmt::print("{:<26} {:>10} replays, {} differ, {:.1f} s, {} rounds of load, {}\n",
             soak.which().name(), outcome.replays, outcome.differing, outcome.elapsed_s,
             outcome.load_rounds, soak.instance());
  if (outcome.differing > 0) {
    fmt::print("  the first in replay {}, the lowest place byte {} of out\n", outcome.first_replay,
               outcome.first_byte);
  }
  std::fflush(stdout);
}

int soak_all(const Arguments& arguments) {
  const std::vector<SoakCase> cases = choose_cases(arguments.layers);
  if (judge::cuda_device_count() == 0) {
    throw Error(ErrorCode::unsupported,
                "the soak needs a Hopper GPU (H100, H200) and its driver: this machine has none "
                "that can be used");
  }
  cuda::check(cudaSetDevice(arguments.cuda_device),
              fmt::format("cudaSetDevice({})", arguments.cuda_device));
  judge::Progress progress(stderr, isatty(STDERR_FILENO) != 0);
  progress.update("weights", 0);
  const SoakLoad load(judge::info(judge::Layer::pooler), arguments.cuda_device);
  // Every case runs with and without programmatic launches.
  const auto runs = static_cast<std::int64_t>(2 * cases.size());
  const std::int64_t share = (arguments.replays + runs - 1) / runs;
  SoakOutcome all;
  std::int64_t runs_done = 0;
  for (SoakCase which : cases) {
    const PackedMatrix packed = pack_layer(which.layer);
    for (const bool programmatic : {false, true}) {
      which.programmatic = programmatic;
      Soak soak(which, packed, arguments.cuda_device);
      const SoakOutcome outcome = soak.run(load, share, [&](double done) {
        progress.update(which.name(),
                        (static_cast<double>(runs_done) + done) / static_cast<double>(runs));
      });
      progress.clear();
      print(soak, outcome);
      all.replays += outcome.replays;
      all.differing += outcome.differing;
      ++runs_done;
    }
  }
  fmt::print("{} replays, {} differ from the first\n", all.replays, all.differing);
  return all.differing == 0 ? exit_ok : exit_failed;
}

int run(int argc, char** argv) {
  CLI::App app{"Replays layers very often beside other work; every result must be the same bits"};
  Arguments arguments;
  app.add_option("--replays", arguments.replays, "Replays in all, shared by the cases")
      ->check(CLI::Range(std::int64_t{1}, replays_max))
      ->capture_default_str();
  app.add_option("--layers", arguments.layers,
                 "Of o, qkv_gate, router and unpooler, separated by commas (default: all)")
      ->delimiter(',');
  app.add_option("--cuda-device", arguments.cuda_device, "Ordinal of the GPU")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? exit_ok : exit_usage;
  }
  return soak_all(arguments);
}

}  // namespace
}  // namespace slimgemm::bench

int main(int argc, char** argv) {
  try {
    return slimgemm::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "soak: %s\n", error.what());
    return slimgemm::bench::exit_usage;
  }
}
