// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/selection.hpp"

#include "codec/sections.hpp"
#include "format/layout.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

namespace slimgemm::checkpoint {
namespace {

bool matches_any(const std::vector<std::string>& globs, const std::string& name) {
  return std::any_of(globs.begin(), globs.end(),
                     [&](const std::string& glob) { return matches(glob, name); });
}

// Tables that are looked up, not multiplied. GPT-NeoX calls its output layer embed_out.
bool names_embedding(std::string_view name) {
  constexpr std::array<std::string_view, 5> tables{"wte", "wpe", "emb", "shared",
                                                   "relative_attention_bias"};
  while (!name.empty()) {
    const std::string_view part = name.substr(0, name.find('.'));
    name.remove_prefix(std::min(name.size(), part.size() + 1));
    if (part == "embed_out") continue;
    if (part.find("embed") != std::string_view::npos || part.ends_with("_emb") ||
        std::find(tables.begin(), tables.end(), part) != tables.end()) {
      return true;
    }
  }
  return false;
}

// Why the name says that it is no matrix of a linear layer, or nothing.
std::string refuse_name(const Tensor& tensor, const SelectOptions& options) {
  const std::string_view name = tensor.name;
  if (tensor.shape.size() == 3) {
    if (name.find("expert") == std::string_view::npos || name.ends_with("bias")) {
      return "three dimensions, but no stack of experts by its name";
    }
    return "";
  }
  if (!name.ends_with(".weight")) return "its name does not end in .weight";
  if (names_embedding(name)) return "an embedding by its name";
  if (options.tied_embeddings && (name == "lm_head.weight" || name.ends_with(".lm_head.weight"))) {
    return "tied to the embeddings (config.json)";
  }
  return "";
}

std::string refuse_dtype(const Tensor& tensor, const SelectOptions& options) {
  if (tensor.dtype == "BF16") return "";
  if (tensor.dtype == "F16") return options.fp16 ? "" : "F16: packed only with --fp16";
  if (tensor.dtype == "F32") return options.fp32 ? "" : "F32: packed only with --fp32";
  return fmt::format("dtype {}", printable(tensor.dtype));
}

// Of an n x k matrix, padded to where the next one begins.
std::uint64_t matrix_bytes(Encoding encoding, std::uint64_t n, std::uint64_t k) {
  Contents contents{.encoding = encoding, .n = n, .k = k};
  if (encoding == Encoding::split12) {
    contents.group_count = format::tiles_along(n, format::tile_rows);
  }
  const auto header = lay_out(contents);
  return header ? align_matrix(header->total_bytes) : std::numeric_limits<std::uint64_t>::max();
}

}  // namespace

bool matches(const std::string& glob, const std::string& name) {
  return fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

std::uint64_t expected_packed_bytes(const Tensor& tensor, const Selection& selection) {
  const Encoding encoding = tensor.dtype == "F32" ? Encoding::raw32 : Encoding::split12;
  return selection.matrices * matrix_bytes(encoding, selection.n, selection.k);
}

Selection select(const Tensor& tensor, const SelectOptions& options) {
  const auto keep = [](const std::string& why) { return Selection{.why = why}; };
  const std::size_t rank = tensor.shape.size();
  if (matches_any(options.exclude, tensor.name)) return keep("--exclude");
  if (rank != 2 && rank != 3) return keep(fmt::format("{} dimensions", rank));
  if (std::string why = refuse_dtype(tensor, options); !why.empty()) return keep(why);
  if (!matches_any(options.include, tensor.name)) {
    if (std::string why = refuse_name(tensor, options); !why.empty()) return keep(why);
  }
  Selection selection{.packed = true, .matrices = rank == 3 ? tensor.shape[0] : 1};
  selection.n = tensor.shape[rank - 2];
  selection.k = tensor.shape[rank - 1];
  constexpr std::uint64_t limit = max_dimension;
  if (tensor.size_bytes() == 0) return keep("no elements");
  if (selection.n > limit || selection.k > limit) {
    return keep(fmt::format("more than {} rows or columns", limit));
  }
  // Padding to whole tiles can cost more than 12 bits save, and make FP32 many times as large.
  const std::uint64_t weights = selection.n * selection.k;
  if (tensor.dtype == "F32") {
    if (matrix_bytes(Encoding::raw32, selection.n, selection.k) >= 2 * sizeof(float) * weights) {
      return keep("too small: padded to tiles of 16 x 64 it would double");
    }
  } else if (matrix_bytes(Encoding::split12, selection.n, selection.k) >= 2 * weights) {
    return keep("too small: padded to tiles of 16 x 64 it would not shrink");
  }
  return selection;
}

}  // namespace slimgemm::checkpoint
