// SPDX-License-Identifier: Apache-2.0
// Writing the table of tuned plans; plan/tuning_table.hpp reads it.
#pragma once

#include "plan/tuning_table.hpp"
#include "tune/tune.hpp"

#include <string>
#include <vector>

namespace slimgemm::tune {

/// The fastest instance of every shape that has one. `source` says where it comes from: device,
/// date, commit.
std::vector<plan::TunedPlan> tuned_plans(const Result& result, const std::string& source);

/// `old` with the entries of `fresh` in the place of those for the same device, shape and m.
std::vector<plan::TunedPlan> merge(std::vector<plan::TunedPlan> old,
                                   const std::vector<plan::TunedPlan>& fresh);

/// The text of a table, its head and a comment before every run of entries from one source.
/// plan::read_tuning_table gives the entries back.
std::string table_text(const std::vector<plan::TunedPlan>& entries);

/// What a table file holds; nothing if there is no such file. Entries with an instance that is no
/// more are left out and told in `unknown_instances`.
/// Errors: io_error naming the path; invalid_argument with every bad line.
plan::TuningText read_table_file(const std::string& path);

}  // namespace slimgemm::tune
