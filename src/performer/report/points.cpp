#include "performer/report/points.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "performer/core/json.h"

namespace performer::report {

Points read_points(const std::filesystem::path& metrics, const std::string& key) {
  std::ifstream file(metrics, std::ios::binary);
  Points points;
  std::string text;
  while (std::getline(file, text)) {
    const auto record = try_parse_json(text);
    const bool usable = record && record->is_object() && record->contains("step") &&
                        record->contains(key) && record->at("step").is_number_integer() &&
                        record->at(key).is_number();
    if (usable) {
      points.push_back({record->at("step").get<double>(), record->at(key).get<double>()});
    }
  }
  return points;
}

Points finite_points(const Points& points) {
  Points kept;
  kept.reserve(points.size());
  std::copy_if(points.begin(), points.end(), std::back_inserter(kept), [](const Point& point) {
    return std::isfinite(point.x) && std::isfinite(point.y) && std::abs(point.y) < 1e100;
  });
  return kept;
}

Points smoothed(const Points& points) {
  const double decay = std::exp(-1 / std::max(1.0, static_cast<double>(points.size()) / 50));
  double sum = 0;
  double weight = 0;
  Points mean;
  mean.reserve(points.size());
  for (const Point& point : points) {
    sum = decay * sum + (1 - decay) * point.y;
    weight = decay * weight + (1 - decay);
    mean.push_back({point.x, sum / weight});
  }
  return mean;
}

Points thinned(const Points& points, const Axis& x, std::int64_t columns) {
  if (static_cast<std::int64_t>(points.size()) <= 2 * columns) {
    return points;
  }
  const auto column = [&](const Point& point) {
    const double position = x.position(point.x);
    return std::min(static_cast<std::int64_t>(position * static_cast<double>(columns)),
                    columns - 1);
  };
  Points kept;
  kept.reserve(static_cast<std::size_t>(2 * columns));
  const auto lower = [](const Point& a, const Point& b) { return a.y < b.y; };
  for (auto first = points.begin(); first != points.end();) {
    const std::int64_t here = column(*first);
    const auto last = std::find_if(first, points.end(),
                                   [&](const Point& point) { return column(point) != here; });
    auto [low, high] = std::minmax_element(first, last, lower);
    if (high < low) {
      std::swap(low, high);
    }
    kept.push_back(*low);
    if (high != low) {
      kept.push_back(*high);
    }
    first = last;
  }
  return kept;
}

}  // namespace performer::report
