// SPDX-License-Identifier: Apache-2.0
// Stands in for everything that reads checkpoints in a build without JSON or XXH3.
#include "inspect/fit.hpp"
#include "inspect/inspection_report.hpp"

#include <slimgemm/error.hpp>

namespace slimgemm::inspect {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::unsupported,
              "checkpoints need JSON and XXH3, and this build lacks one of them. Install "
              "nlohmann-json3-dev and libxxhash-dev, configure and build again");
}

}  // namespace

Model::Model(const std::string&) { refuse(); }

Inspection inspect(const Model&, const InspectOptions&) { refuse(); }
std::string inspection_text(const Model&, const Inspection&, bool) { refuse(); }
std::string inspection_json(const Model&, const Inspection&) { refuse(); }
std::string inspection_html(const Model&, const Inspection&, bool) { refuse(); }

FitResult fit(const Model&, const FitQuery&) { refuse(); }
std::string fit_text(const Model&, const FitQuery&, const FitResult&) { refuse(); }
std::string fit_json(const Model&, const FitQuery&, const FitResult&) { refuse(); }

}  // namespace slimgemm::inspect
