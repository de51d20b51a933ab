// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: they are refused with Error(corrupt_data), or the size of the KV
// cache that follows from them is unknown, or is a number that does not overflow.
#include "inspect/kv_cache.hpp"

#include <slimgemm/error.hpp>

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

using namespace slimgemm;
using namespace slimgemm::inspect;

constexpr std::uint64_t tokens_max = std::uint64_t{1} << 30;  // that fit() lets through

void require(bool condition) {
  if (!condition) std::abort();
}

void check_cache(const KvCache& cache) {
  if (!cache.unknown.empty() || cache.keeps_none) return;
  require(!cache.formula.empty());
  const std::uint64_t most = cache.bytes_of(tokens_max);
  require(most >= cache.bytes_of(tokens_max - 1));
  require(static_cast<long double>(most) <=
          static_cast<long double>(tokens_max) *
              (static_cast<long double>(cache.bytes_per_token) +
               static_cast<long double>(cache.window_bytes_per_token)));
  const std::uint64_t half = cache.bytes_of(tokens_max / 2);
  require(cache.tokens_within(half, tokens_max) >= tokens_max / 2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ModelConfig config = parse_config(text, "fuzzed");
    check_cache(kv_cache(config, 2));
    check_cache(kv_cache(config, 1));
  } catch (const Error& error) {
    require(error.code() == ErrorCode::corrupt_data);
    require(std::string_view(error.what()).size() < 4096);
  }
  return 0;
}
