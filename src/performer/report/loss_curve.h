#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "performer/report/markup.h"
#include "performer/report/points.h"

namespace performer::report {

struct LossCurve {
  std::string title;
  Points train;  // ascending steps
  Points valid;
  std::optional<double> baseline = {};  // loss of a guess by frequencies
};

/// The curve of a run by its file of metrics.
LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title);

/// A picture of a run that reads on light and dark pages: each loss of training faint, their running
/// mean, validation as dots, the baseline as a dashed line; perplexities on the right. Values that
/// are not finite are left out. Its size does not grow with the number of points.
Markup draw(const LossCurve& curve);
/// The same as the text of a file.
std::string loss_curve_svg(const LossCurve& curve);

}  // namespace performer::report
