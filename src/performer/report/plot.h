#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "performer/report/axis.h"
#include "performer/report/markup.h"
#include "performer/report/points.h"

namespace performer::report {

/// Mid tones that tell lines apart, readable on white and on black.
inline constexpr std::array<std::string_view, 6> kLineColors = {"#3f83cc", "#d9730d", "#2e9e6b",
                                                                "#8a63d2", "#c2447a", "#8c7a00"};

enum class Mark : std::uint8_t { kLine, kDashed, kDots, kLineAndDots };

struct Series {
  std::string name;  // in the legend; empty: not there
  Points points;     // finite (finite_points), of ascending x
  std::string_view color = kLineColors[0];
  Mark mark = Mark::kLine;
  double width = 2, opacity = 1;
};

/// Lines over a common axis.
struct Plot {
  std::string title, x_title, y_title;
  std::vector<Series> series;  // drawn in this order
  Axis x, y;                   // values beyond y are cut off
  std::string right_title;     // of a second scale at the right side, where right_label is set:
  std::function<std::string(double y)> right_label;  // what stands beside a tick of y; may be ""
};

/// Axes around all points.
void fit_axes(Plot& plot, Values x_values = Values::kReal);

/// The picture as one SVG that needs nothing beside it, on light and dark pages; "nothing to draw"
/// without a point. Its size does not grow with the number of points.
Markup draw(const Plot& plot);

/// The plain case: lines with dots over whole numbers, in the colours above.
struct NamedPoints {
  std::string name;
  Points points;
};
Markup line_plot(const std::string& title, const std::string& x_title, const std::string& y_title,
                 const std::vector<NamedPoints>& lines);

}  // namespace performer::report
