// SPDX-License-Identifier: Apache-2.0
// An inspection for people (text, HTML) and for programs (JSON, docs/inspecting.md).
#pragma once

#include "inspect/inspection.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace slimgemm::inspect {

/// One line of the tables: a tensor, or the experts of a layer that have a tensor each.
struct TableRow {
  std::string name;  ///< "model.layers.3.mlp.experts.*.up_proj.weight"
  std::uint64_t tensors = 0;
  std::vector<std::uint64_t> shape;
  ExponentStatistics exponents;
  double entropy_weights = 0;  ///< sum over tensors of entropy x weights

  [[nodiscard]] double entropy() const;
  [[nodiscard]] double above_ideal() const {
    return exponents.stored_bits() - other_bits - entropy();
  }
};
std::vector<TableRow> table_rows(const Inspection& inspection);

/// The same of FP16 tensors that are not packed.
struct Fp16Row {
  std::string name;
  std::vector<std::uint64_t> shape;
  Fp16Statistics statistics;
  /// "stays at 16 bits", "12.05 bits".
  [[nodiscard]] std::string with_option() const;
};
std::vector<Fp16Row> fp16_rows(const Inspection& inspection);

/// What the columns of their table mean, and what follows from them.
std::string fp16_explanation(const Inspection& inspection);

/// The tensors that are not packed, by reason.
struct KeptGroup {
  std::uint64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::string example;
};
std::map<std::string, KeptGroup> kept_groups(const Inspection& inspection);

/// The window of a row: "2^-17 .. 2^-1", the magnitudes that 12 bits express.
std::string window_text(const ExponentStatistics& exponents);

/// "12.02 bits are 1.38 above 10.64, ...".
std::string ideal_sentence(double stored_bits, double ideal_bits);

/// `single`: the inspection is of one tensor, whose exponents are then listed.
std::string inspection_text(const Model& model, const Inspection& inspection, bool single);

/// Documented in docs/inspecting.md.
std::string inspection_json(const Model& model, const Inspection& inspection);

/// One page without outside resources, the JSON inside it.
std::string inspection_html(const Model& model, const Inspection& inspection, bool single);

}  // namespace slimgemm::inspect
