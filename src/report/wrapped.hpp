// SPDX-License-Identifier: Apache-2.0
// Sentences for a terminal.
#pragma once

#include <string>

namespace slimgemm::report {

/// `text` broken at blanks into lines of at most 100 columns: the first begins with `first`, the
/// others with as many blanks.
std::string wrapped(const std::string& first, const std::string& text);

}  // namespace slimgemm::report
