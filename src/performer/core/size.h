#pragma once

#include <cstdint>

namespace performer {

/// A count, or bytes, made of sizes that a file gave: stays at the largest number where it would
/// pass it, so that one comparison at the end refuses what is too large. Never negative.
class Size {
 public:
  constexpr Size(std::int64_t value = 0) : value_(value) {}
  constexpr std::int64_t value() const { return value_; }

  friend constexpr Size operator+(Size a, Size b) {
    std::int64_t sum = 0;
    return __builtin_add_overflow(a.value_, b.value_, &sum) ? INT64_MAX : sum;
  }
  friend constexpr Size operator*(Size a, Size b) {
    std::int64_t product = 0;
    return __builtin_mul_overflow(a.value_, b.value_, &product) ? INT64_MAX : product;
  }
  constexpr Size& operator+=(Size other) { return *this = *this + other; }

 private:
  std::int64_t value_;
};

}  // namespace performer
