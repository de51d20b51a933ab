// SPDX-License-Identifier: Apache-2.0
// XXH3-64 of data that comes in pieces, and checksums inside the text that they protect.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace slimgemm::checkpoint {

/// XXH3-64 of the pieces given so far, joined.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 16 lower-case hexadecimal digits.
std::string hex(std::uint64_t value);

/// hex() of the XXH3-64 of a text.
std::string xxh3_text(std::string_view text);

/// What stands for the digits of a seal while it is computed.
inline constexpr std::string_view unsealed = "0000000000000000";

/// A seal is a string of 16 hexadecimal digits under `key` in a JSON text: the XXH3-64 of the text
/// with those digits as zeros. seal() puts it in place of `unsealed`.
void seal(std::string& text, std::string_view key);

/// Empty if the text has a right seal under `key`, else what is wrong with it.
std::string check_seal(std::string_view text, std::string_view key);

}  // namespace slimgemm::checkpoint
