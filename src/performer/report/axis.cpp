#include "performer/report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace performer::report {
namespace {

// The smallest of 1, 2, 5 x 10^n that is at least `step`.
double round_step(double step) {
  const double power = std::pow(10.0, std::floor(std::log10(step)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= step * (1 - 1e-9)) {
      return digit * power;
    }
  }
  return 10 * power;
}

}  // namespace

Axis make_axis(double low, double high, std::int64_t num_ticks, Values values) {
  // Narrower than this, neighbouring ticks would be the same number.
  const double least = std::max({std::abs(low), std::abs(high), 1e-300}) * 1e-9;
  if (!(high - low > least)) {
    const double margin = std::max(std::abs(low) * 0.1, 0.5);
    low -= margin;
    high += margin;
  }
  Axis axis{low, high, {}, 0};
  axis.tick_step = round_step((high - low) / static_cast<double>(num_ticks));
  if (values == Values::kWhole) {
    axis.tick_step = std::max(axis.tick_step, 1.0);
  }
  const double first = std::ceil(low / axis.tick_step - 1e-9);
  const double last = std::floor(high / axis.tick_step + 1e-9);
  for (double i = first; i <= last; i += 1) {
    axis.ticks.push_back(i * axis.tick_step);
  }
  return axis;
}

std::string tick_label(const Axis& axis, double value) {
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  if (largest >= 1e15 || axis.tick_step < 1e-6) {
    return fmt::format("{:.3g}", value);
  }
  double unit = 1;
  const char* suffix = "";
  for (const auto& [size, name] : {std::pair{1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}}) {
    // Four digits still read better in full.
    if (largest >= (size == 1e3 ? 10 * size : size)) {
      unit = size;
      suffix = name;
    }
  }
  if (value == 0) {
    return "0";
  }
  const double places = std::ceil(-std::log10(axis.tick_step / unit) - 1e-9);
  return fmt::format("{:.{}f}{}", value / unit, static_cast<int>(std::clamp(places, 0.0, 12.0)),
                     suffix);
}

}  // namespace performer::report
