#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "performer/report/axis.h"

namespace performer::report {

struct Point {
  double x = 0, y = 0;
};

using Points = std::vector<Point>;  // of ascending x

/// The points (record["step"], record[key]) of a JSONL file of metrics; records without that number
/// and lines that are not JSON are passed over.
Points read_points(const std::filesystem::path& metrics, const std::string& key);

/// Without the values that cannot be drawn.
Points finite_points(const Points& points);

/// Means with exponentially fading weights over about a fiftieth of the points; the first values are
/// not pulled to zero.
Points smoothed(const Points& points);

/// The lowest and the highest point of each column of the picture: the same line from few points.
Points thinned(const Points& points, const Axis& x, std::int64_t columns);

}  // namespace performer::report
