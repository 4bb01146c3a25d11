#include "performer/ops/projection/grid.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace performer {
namespace {

constexpr int kSignificantBits = 8;
constexpr int kLowestBit = -24;
constexpr int kDroppedBits = 53 - kSignificantBits;  // of float64's significand

}  // namespace

double round_to_grid(double value) {
  if (!std::isfinite(value)) return value;
  int exponent = 0;
  (void)std::frexp(value, &exponent);  // |value| < 2^exponent
  const int unit = std::max(exponent - kSignificantBits, kLowestBit);
  const double scaled = std::ldexp(std::abs(value), -unit);  // exact, at most 256
  const auto below = static_cast<int>(scaled);
  const double rest = scaled - below;
  const bool up = rest > 0.5 || (rest == 0.5 && below % 2 == 1);
  return std::copysign(std::ldexp(below + (up ? 1 : 0), unit), value);
}

at::Tensor round_to_grid(const at::Tensor& values) {
  constexpr std::int64_t kHalf = std::int64_t{1} << (kDroppedBits - 1);
  const double scale = std::ldexp(1.0, -kLowestBit);
  const at::Tensor given = values.detach();
  // Added to the bits of a float64, a carry out of the significand raises the exponent.
  const at::Tensor bits = given.view(at::kLong);
  const at::Tensor odd = bits.bitwise_right_shift(kDroppedBits).bitwise_and(1);
  const at::Tensor coarse = (bits + odd + (kHalf - 1)).bitwise_and(-2 * kHalf).view(at::kDouble);
  const at::Tensor fine = (given * scale).round() / scale;  // at::round takes ties to even
  const at::Tensor near_zero = given.abs() < std::ldexp(1.0, kLowestBit + kSignificantBits - 1);
  // The step is exact: a number and its neighbour on the grid are within a factor of two, or that
  // neighbour is 0.
  const at::Tensor step = at::where(near_zero, fine, coarse) - given;
  return values + at::where(given.isfinite(), step, 0.0);
}

}  // namespace performer
