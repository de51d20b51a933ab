// SPDX-License-Identifier: Apache-2.0
// From the arguments of `slimgemm judge` to what is judged, by whom and on which machine. Bad usage
// throws Error(invalid_argument) naming the option and the choice.
#pragma once

#include "judge/contender.hpp"
#include "judge/executor.hpp"
#include "judge/run.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace slimgemm::cli {

struct JudgeArguments {
  std::string device = "auto";
  std::string contender = "slimgemm";
  std::vector<std::string> baselines{"auto"};
  std::string shapes;
  std::vector<std::string> loads;
  std::vector<std::string> layers;
  bool list = false;
  int repeats = 0;
  int queue_replays = 1;
  std::uint64_t seed = 1;
  std::string weights;
  std::string json;
  std::string html;
  std::string markdown;
  int threads = 0;
  bool batch_invariant = false;
};

/// The fixed problem or the shape file's, without what --loads and --layers leave out.
judge::Problem choose_problem(const JudgeArguments& arguments);

/// Its layers and token counts as a table.
std::string problem_text(const judge::Problem& problem);

std::unique_ptr<judge::Executor> choose_executor(const JudgeArguments& arguments);

/// The names of the baselines, `auto` resolved and `none` left out. A baseline that was named but
/// is not in this build or cannot run on this device is an error.
std::vector<std::string> choose_baselines(const JudgeArguments& arguments, int cuda_device);

judge::Contestants make_contestants(const JudgeArguments& arguments,
                                    const std::vector<std::string>& baselines, int cuda_device,
                                    const judge::Problem& problem);

judge::RunOptions run_options(const JudgeArguments& arguments, judge::Problem problem,
                              bool is_cuda);

}  // namespace slimgemm::cli
