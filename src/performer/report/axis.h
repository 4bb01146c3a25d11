#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace performer::report {

/// A range of values with round numbers to write beside it.
struct Axis {
  double low = 0;
  double high = 1;
  std::vector<double> ticks;  // inside the range, ascending
  double tick_step = 1;

  /// 0 at the low end, 1 at the high end.
  double position(double value) const { return (value - low) / (high - low); }
};

enum class Values : std::uint8_t { kReal, kWhole };

/// An axis over [low, high], finite, with about `num_ticks` ticks at multiples of 1, 2 or 5 times a
/// power of ten, and at whole numbers only where asked. A range of no width is widened.
Axis make_axis(double low, double high, std::int64_t num_ticks, Values values = Values::kReal);

/// As few digits as tell a tick from its neighbours; thousands as k, millions as M, and so on.
std::string tick_label(const Axis& axis, double value);

}  // namespace performer::report
