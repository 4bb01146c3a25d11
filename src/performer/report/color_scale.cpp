#include "performer/report/color_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace performer::report {
namespace {

using Color = std::array<double, 3>;

// Viridis, and the red and blue of ColorBrewer, at equal distances.
constexpr std::array<Color, 6> kViridis = {Color{68, 1, 84},    Color{65, 68, 135},
                                           Color{42, 120, 142}, Color{34, 168, 132},
                                           Color{122, 209, 81}, Color{253, 231, 37}};
constexpr std::array<Color, 5> kBlueRed = {Color{33, 102, 172}, Color{146, 197, 222},
                                           Color{247, 247, 247}, Color{244, 165, 130},
                                           Color{178, 24, 43}};

Color color_at(Scale scale, std::int64_t level) {
  const std::span<const Color> colors = scale == Scale::kSequential
                                            ? std::span<const Color>(kViridis)
                                            : std::span<const Color>(kBlueRed);
  const auto last = static_cast<double>(colors.size() - 1);
  const double place =
      last * static_cast<double>(std::clamp<std::int64_t>(level, 0, kLevels - 1)) / (kLevels - 1);
  const auto below = std::min(static_cast<std::size_t>(place), colors.size() - 2);
  const double part = place - static_cast<double>(below);
  Color color{};
  for (std::size_t i = 0; i < color.size(); ++i) {
    color[i] = (1 - part) * colors[below][i] + part * colors[below + 1][i];
  }
  return color;
}

}  // namespace

std::string level_color(Scale scale, std::int64_t level) {
  const auto [red, green, blue] = color_at(scale, level);
  const auto whole = [](double value) { return static_cast<int>(std::lround(value)); };
  return fmt::format("#{:02x}{:02x}{:02x}", whole(red), whole(green), whole(blue));
}

bool is_light(Scale scale, std::int64_t level) {
  const auto [red, green, blue] = color_at(scale, level);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 128;
}

}  // namespace performer::report
