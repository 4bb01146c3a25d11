#pragma once

#include <CLI/App.hpp>
#include <cstdint>

namespace performer::cli {

/// Lets a whole-number option take decimal numbers from `least` to `most` alone. Anything else,
/// such as 1e18 or nan, is one line that names the option, the range and what was given.
CLI::Option* bounded(CLI::Option* option, std::int64_t least, std::int64_t most);

/// The numbers that an option may take: finite, from `least` (without it where `above`) to `most`.
struct Interval {
  double least = 0, most = 1;
  bool above = false;
};
CLI::Option* bounded(CLI::Option* option, const Interval& interval);

// Far beyond what any machine holds, near enough that products of two do not overflow.
inline constexpr std::int64_t kMostRows = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
inline constexpr std::int64_t kMostSteps = std::int64_t{1} << 40;

}  // namespace performer::cli
