// SPDX-License-Identifier: Apache-2.0
#include "tune/layers.hpp"

#include "support/refuse.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace slimgemm::tune {
namespace {

DType dtype_of(Encoding encoding) { return encoding == Encoding::raw32 ? DType::f32 : DType::bf16; }

void check_dimension(const char* option, std::int64_t value) {
  if (value >= 1 && value <= max_dimension) return;
  refuse_argument(
      fmt::format("{} is {}: it must be 1 to {} (or give --layer)", option, value, max_dimension));
}

}  // namespace

Encoding parse_encoding(const std::string& what, const std::string& text) {
  for (const Encoding e : {Encoding::split12, Encoding::raw16, Encoding::raw32}) {
    if (text == name(e)) return e;
  }
  refuse_argument(fmt::format("{} is {}: it must be split12, raw16 or raw32", what, text));
}

const judge::LayerInfo& find_layer(const std::string& option, const std::string& name) {
  std::vector<std::string> names;
  for (const judge::LayerInfo& layer : judge::layers()) {
    if (layer.name == name) return layer;
    names.emplace_back(layer.name);
  }
  refuse_argument(
      fmt::format("{} is {}: it must be one of {}", option, name, fmt::join(names, ", ")));
}

judge::LayerInfo plain_layer(std::int64_t n, std::int64_t k, Encoding encoding) {
  check_dimension("--n", n);
  check_dimension("--k", k);
  judge::LayerInfo layer{};
  layer.name = fmt::format("{}x{}", n, k);
  layer.n = n;
  layer.k = k;
  layer.dtype = dtype_of(encoding);
  layer.slice_n = n;
  return layer;
}

void add_job(std::vector<Job>& jobs, const judge::LayerInfo& layer, const std::string& encoding,
             const std::vector<std::int64_t>& tokens) {
  Job job;
  job.layer = layer;
  job.encoding = layer.dtype == DType::f32 ? Encoding::raw32 : Encoding::split12;
  if (!encoding.empty()) job.encoding = parse_encoding("--encoding", encoding);
  if (dtype_of(job.encoding) != layer.dtype) {
    refuse_argument(
        fmt::format("--encoding {} is not one for {}, whose weights are {}: choose other "
                    "layers, or leave it out",
                    encoding, layer.name, name(layer.dtype)));
  }
  for (const std::int64_t m : tokens) {
    if (m < 1 || m > max_dimension) {
      refuse_argument(fmt::format("--m has {}: it must be 1 to {}", m, max_dimension));
    }
  }
  const auto same = std::find_if(jobs.begin(), jobs.end(), [&](const Job& other) {
    return other.encoding == job.encoding && other.layer.n == layer.n && other.layer.k == layer.k &&
           other.layer.slice_n == layer.slice_n && other.layer.slice_max_m == layer.slice_max_m;
  });
  Job& taker = same == jobs.end() ? jobs.emplace_back(std::move(job)) : *same;
  taker.tokens.insert(taker.tokens.end(), tokens.begin(), tokens.end());
  std::sort(taker.tokens.begin(), taker.tokens.end());
  taker.tokens.erase(std::unique(taker.tokens.begin(), taker.tokens.end()), taker.tokens.end());
}

}  // namespace slimgemm::tune
