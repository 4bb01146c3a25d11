#include "performer/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace performer::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kWidth = 760;  // of the cells together, about
constexpr double kWidest = 46, kNarrowest = 7;
constexpr double kNumbersFrom = 34;  // a cell this wide has room for a number
constexpr double kLetter = 7;        // width of one

struct Range {
  double low = 0, high = 1;
};

Range range_of(const HeatMap& map) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (const double value : map.values) {
    if (!std::isfinite(value)) continue;
    range.low = std::min(range.low, value), range.high = std::max(range.high, value);
  }
  if (range.low > range.high) range = {0, 1};
  if (map.scale == Scale::kDiverging) {
    range.high = std::max(std::abs(range.low), std::abs(range.high));
    range.low = -range.high;
  }
  range.low = map.low.value_or(range.low), range.high = map.high.value_or(range.high);
  if (!(range.high > range.low)) range.high = range.low + 1;
  return range;
}

std::size_t longest(const std::vector<std::string>& names) {
  std::size_t most = 0;
  for (const auto& name : names) most = std::max(most, name.size());
  return most;
}

class Grid {
 public:
  explicit Grid(const HeatMap& map)
      : map_(map),
        range_(range_of(map)),
        columns_(static_cast<double>(map.columns.size())),
        rows_(static_cast<double>(map.rows.size())),
        cell_(std::clamp(std::floor(kWidth / std::max(columns_, 1.0)), kNarrowest, kWidest)),
        row_(cell_ >= kNumbersFrom ? 24 : std::max(cell_, 12.0)),
        left_(kLetter * static_cast<double>(std::max(longest(map.rows), map.row_title.size())) +
              14) {}

  Markup svg() const {
    const double width = left_ + columns_ * cell_ + 8, height = kTop + rows_ * row_ + 6;
    return Markup::element("svg",
                           {{"viewBox", fmt::format("0 0 {} {}", pixels(width), pixels(height))},
                            {"width", pixels(width)},
                            {"height", pixels(height)},
                            {"font-size", "12"},
                            {"role", "img"},
                            {"tabindex", "0"},
                            {"data-left", pixels(left_)},
                            {"data-top", pixels(kTop)},
                            {"data-cell", pixels(cell_)},
                            {"data-row", pixels(row_)},
                            {"aria-label", summary()}},
                           names() + cells() + numbers());
  }

  // Left and right end, with the colours between.
  Markup key() const {
    Markup bar;
    for (std::int64_t i = 0; i < kLevels; ++i) {
      bar += Markup::leaf("rect", {{"x", std::to_string(2 * i)},
                                   {"width", "2.5"},
                                   {"height", "12"},
                                   {"fill", level_color(map_.scale, i)}});
    }
    const Markup svg = Markup::element(
        "svg",
        {{"viewBox", "0 0 130 12"}, {"width", "130"}, {"height", "12"}, {"aria-hidden", "true"}},
        bar);
    return Markup::element("p", {{"class", "key"}},
                           Markup::text(number_text(range_.low) + " ") + svg +
                               Markup::text(" " + number_text(range_.high)));
  }

  Json json() const {
    Json values = Json::array();
    for (const double value : map_.values) {
      values.push_back(std::isfinite(value) ? Json(number_text(value, 4)) : Json());
    }
    return {{"row", map_.row_title},
            {"column", map_.column_title},
            {"rows", map_.rows},
            {"columns", map_.columns},
            {"values", values}};
  }

 private:
  static constexpr double kTop = 40;

  std::int64_t level(double value) const {
    const double part = std::clamp((value - range_.low) / (range_.high - range_.low), 0.0, 1.0);
    return std::llround(part * (kLevels - 1));
  }

  std::string summary() const {
    return fmt::format("{}: {} rows ({}) by {} columns ({}), from {} to {}", map_.title,
                       map_.rows.size(), map_.row_title, map_.columns.size(), map_.column_title,
                       number_text(range_.low), number_text(range_.high));
  }

  // Each row's name, and of the columns as many as have room.
  Markup names() const {
    Markup out = Markup::element("text", {{"x", pixels(left_)}, {"y", "14"}}, map_.column_title);
    out += Markup::element(
        "text", {{"x", pixels(left_ - 8)}, {"y", pixels(kTop - 6)}, {"text-anchor", "end"}},
        map_.row_title);
    for (std::size_t i = 0; i < map_.rows.size(); ++i) {
      out += Markup::element("text",
                             {{"x", pixels(left_ - 8)},
                              {"y", pixels(kTop + (static_cast<double>(i) + 0.5) * row_ + 4)},
                              {"text-anchor", "end"}},
                             map_.rows[i]);
    }
    const double needed = kLetter * static_cast<double>(longest(map_.columns)) + 6;
    const auto step = static_cast<std::size_t>(std::max(1.0, std::ceil(needed / cell_)));
    for (std::size_t i = 0; i < map_.columns.size(); i += step) {
      out += Markup::element("text",
                             {{"x", pixels(left_ + (static_cast<double>(i) + 0.5) * cell_)},
                              {"y", pixels(kTop - 6)},
                              {"text-anchor", "middle"}},
                             map_.columns[i]);
    }
    return out;
  }

  Markup cells() const {
    std::array<std::string, kLevels> paths;
    for (std::size_t i = 0; i < map_.values.size(); ++i) {
      if (!std::isfinite(map_.values[i])) continue;
      const auto column = static_cast<double>(i % map_.columns.size());
      const std::size_t whole = i / map_.columns.size();
      const auto row = static_cast<double>(whole);
      fmt::format_to(std::back_inserter(paths.at(static_cast<std::size_t>(level(map_.values[i])))),
                     "M{} {}h{}v{}h-{}z", pixels(left_ + column * cell_), pixels(kTop + row * row_),
                     pixels(cell_), pixels(row_), pixels(cell_));
    }
    Markup out;
    for (std::size_t i = 0; i < paths.size(); ++i) {
      if (paths[i].empty()) continue;
      out += Markup::leaf(
          "path",
          {{"d", paths[i]}, {"fill", level_color(map_.scale, static_cast<std::int64_t>(i))}});
    }
    return out;
  }

  Markup numbers() const {
    Markup out;
    if (cell_ < kNumbersFrom) return out;
    for (std::size_t i = 0; i < map_.values.size(); ++i) {
      const double value = map_.values[i];
      const auto column = static_cast<double>(i % map_.columns.size());
      const std::size_t whole = i / map_.columns.size();
      const auto row = static_cast<double>(whole);
      const bool light = std::isfinite(value) && is_light(map_.scale, level(value));
      out += Markup::element("text",
                             {{"x", pixels(left_ + (column + 0.5) * cell_)},
                              {"y", pixels(kTop + (row + 0.5) * row_ + 4)},
                              {"text-anchor", "middle"},
                              {"font-size", "11"},
                              {"class", !std::isfinite(value) ? "none"
                                        : light               ? "on-light"
                                                              : "on-dark"}},
                             number_text(value, 2));
    }
    return out;
  }

  const HeatMap& map_;
  Range range_;
  double columns_, rows_, cell_, row_, left_;
};

}  // namespace

Markup draw(const HeatMap& map) {
  const Grid grid(map);
  const Markup readout = Markup::element(
      "output", {{"aria-live", "polite"}},
      "Point at a cell, or choose the map and use the arrow keys, to read its value.");
  return Markup::element("figure", {{"class", "heat-map"}},
                         Markup::element("figcaption", {}, map.title) +
                             Markup::element("div", {{"class", "scroll"}}, grid.svg()) +
                             grid.key() + Markup::element("p", {{"class", "readout"}}, readout) +
                             Markup::data(grid.json()));
}

}  // namespace performer::report
