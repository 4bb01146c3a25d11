#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "performer/report/axis.h"

namespace performer::report {

struct LossPoint {
  std::int64_t step = 0;
  double loss = 0;
};

using LossPoints = std::vector<LossPoint>;  // of ascending steps

/// The points (record["step"], record[key]) of a JSONL file of metrics; records without that number
/// and lines that are not JSON are passed over.
LossPoints read_points(const std::filesystem::path& metrics, const std::string& key);

/// Without the values that cannot be drawn.
LossPoints finite_points(const LossPoints& points);

/// Means with exponentially fading weights over about a fiftieth of the run; the first values are
/// not pulled to zero.
LossPoints smoothed(const LossPoints& points);

/// The lowest and the highest point of each column of the picture: the same line from few points.
LossPoints thinned(const LossPoints& points, const Axis& steps, std::int64_t columns);

}  // namespace performer::report
