// SPDX-License-Identifier: Apache-2.0
// Numbers as the reports of this folder write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slimgemm::inspect {

/// "16.06 GB", "3.15 MB", "81.2 KB", "812 bytes"; GB is 10^9 bytes. `decimals` of GB and MB.
std::string bytes_text(double bytes, int decimals = 2);
std::string bytes_text(std::uint64_t bytes);

/// "1,234,567".
std::string count_text(std::uint64_t count);

/// "4096 x 1024".
std::string shape_text(const std::vector<std::uint64_t>& shape);

/// "0.0123 %": three significant digits.
std::string percent_text(double share);

/// The magnitudes whose biased exponent it is: "2^-17"; "0" for exponent 0.
std::string power_text(int exponent);

/// "1.23 ms", "45.6 us".
std::string time_text(double us);

}  // namespace slimgemm::inspect
