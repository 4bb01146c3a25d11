#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace performer::data {

/// First half of the SHA-256 of a sequence's tokens: who has the same one is the same sequence.
using ContentHash = std::array<std::uint64_t, 2>;

ContentHash content_hash(std::span<const std::uint8_t> bytes);
ContentHash content_hash(std::string_view text);

struct ContentHashHasher {
  std::size_t operator()(const ContentHash& hash) const { return hash[0]; }
};

}  // namespace performer::data
