// SPDX-License-Identifier: Apache-2.0
// Any bytes to parse_shape_file(): they are refused with Error(invalid_argument), or they are
// layers and cases that the judge can run.
#include "judge/shape_file.hpp"

#include <slimgemm/error.hpp>

#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace {

using namespace slimgemm;
using namespace slimgemm::judge;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_problem(const Problem& problem) {
  require(!problem.layers.empty() && problem.layers.size() <= shape_layers_max);
  std::set<std::string> names;
  for (std::size_t i = 0; i < problem.layers.size(); ++i) {
    const LayerInfo& layer = problem.layers[i];
    require(layer.layer == static_cast<Layer>(i));
    require(names.insert(layer.name).second);
    require(!layer.name.empty() && layer.name.size() <= shape_name_max);
    require(layer.name.find_first_of(" ,<>\"'&|\n") == std::string::npos);
    require(layer.n >= 1 && layer.k >= 1);
    require(layer.n <= shape_weight_bytes_max / layer.k / size_bytes(layer.dtype));
  }
  std::set<std::pair<Layer, std::int64_t>> cases;
  for (const Case& c : problem.cases) {
    require(c.scored && c.m >= 1 && c.m <= shape_tokens_max);
    require(cases.insert({c.layer, c.m}).second);
    require(resolve(c, problem.layers).n == problem.layers[static_cast<std::size_t>(c.layer)].n);
  }
  require(cases.size() >= problem.layers.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check_problem(parse_shape_file(text, "fuzzed"));
  } catch (const Error& error) {
    require(error.code() == ErrorCode::invalid_argument);
    require(std::string_view(error.what()).size() < 4096);
  }
  return 0;
}
