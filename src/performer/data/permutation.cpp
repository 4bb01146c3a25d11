#include "performer/data/permutation.h"

#include <array>
#include <bit>

#include "performer/core/random.h"
#include "performer/data/sample_random.h"

namespace performer::data {
namespace {

constexpr std::uint32_t kRounds = 6;

}  // namespace

Permutation::Permutation(std::int64_t size, const Key& key)
    : size_(size),
      key_(key),
      half_bits_((std::bit_width(static_cast<std::uint64_t>(size > 1 ? size - 1 : 1)) + 1) / 2) {}

std::uint64_t Permutation::encrypt(std::uint64_t x) const {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  const std::array<std::uint32_t, 2> key = {static_cast<std::uint32_t>(key_.seed),
                                            static_cast<std::uint32_t>(key_.seed >> 32)};
  std::uint64_t left = x >> half_bits_, right = x & mask;
  for (std::uint32_t round = 0; round < kRounds; ++round) {
    const std::uint32_t who = round | static_cast<std::uint32_t>(key_.purpose) << 8 |
                              static_cast<std::uint32_t>(Purpose::kOrder) << 24;
    const auto bits =
        philox4x32({static_cast<std::uint32_t>(right), who, static_cast<std::uint32_t>(key_.epoch),
                    static_cast<std::uint32_t>(half_bits_)},
                   key);
    const std::uint64_t next = (left ^ bits[0]) & mask;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  auto x = static_cast<std::uint64_t>(index);
  do {
    x = encrypt(x);
  } while (x >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(x);
}

}  // namespace performer::data
