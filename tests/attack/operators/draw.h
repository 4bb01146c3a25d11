#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace performer::testing {

/// Draws of one seed, the same on every machine: no distributions of the standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}

  std::uint64_t bits() { return engine_(); }
  /// low ... high, both included.
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool one_in(std::uint64_t n) { return engine_() % n == 0; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[engine_() % items.size()];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace performer::testing
