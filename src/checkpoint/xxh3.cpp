// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/xxh3.hpp"

#include "codec/checksum.hpp"

#include <slimgemm/error.hpp>

#include <fmt/format.h>

#include <new>

// Without optimisation a compiler can't inline what xxhash.h insists on.
#if !defined(NDEBUG)
#define XXH_NO_INLINE_HINTS 1
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace slimgemm::checkpoint {
namespace {

std::uint64_t digest_text(std::string_view text) {
  return checksum(std::as_bytes(std::span(text)));
}

// Where the digits of the seal begin, or npos.
std::size_t find_seal(std::string_view text, std::string_view key) {
  const std::string name = fmt::format("\"{}\"", key);
  std::size_t at = text.find(name);
  if (at == std::string_view::npos) return at;
  at = text.find_first_not_of(": ", at + name.size());
  if (at == std::string_view::npos || text[at] != '"') return std::string_view::npos;
  ++at;
  const std::size_t end = at + unsealed.size();
  if (end >= text.size() || text[end] != '"') return std::string_view::npos;
  return at;
}

}  // namespace

struct Xxh3::State {
  alignas(64) XXH3_state_t value;
};

Xxh3::Xxh3() : state_(std::make_unique<State>()) {
  XXH3_INITSTATE(&state_->value);
  XXH3_64bits_reset(&state_->value);
}

Xxh3::~Xxh3() = default;

void Xxh3::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->value, bytes.data(), bytes.size());
}

std::uint64_t Xxh3::digest() const { return XXH3_64bits_digest(&state_->value); }

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

std::string xxh3_text(std::string_view text) { return hex(digest_text(text)); }

void seal(std::string& text, std::string_view key) {
  const std::size_t at = find_seal(text, key);
  if (at == std::string::npos || text.compare(at, unsealed.size(), unsealed) != 0) {
    throw Error(ErrorCode::invalid_argument, fmt::format("no place for the checksum {}", key));
  }
  text.replace(at, unsealed.size(), xxh3_text(text));
}

std::string check_seal(std::string_view text, std::string_view key) {
  const std::size_t at = find_seal(text, key);
  if (at == std::string_view::npos) return fmt::format("its checksum {} is missing", key);
  std::string zeroed(text);
  zeroed.replace(at, unsealed.size(), unsealed);
  const std::string actual = xxh3_text(zeroed);
  const std::string_view stated = text.substr(at, unsealed.size());
  if (stated == actual) return "";
  return fmt::format("its checksum {} says {}, but its bytes make {}", key, stated, actual);
}

}  // namespace slimgemm::checkpoint
