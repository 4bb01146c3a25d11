#pragma once

#include <optional>
#include <string>
#include <vector>

#include "performer/report/color_scale.h"
#include "performer/report/markup.h"

namespace performer::report {

/// A matrix of numbers in colours: layers x heads, letters x positions.
struct HeatMap {
  std::string title, row_title, column_title;  // "layer", "head": of one row and column
  std::vector<std::string> rows, columns;      // their names
  std::vector<double> values;                  // rows.size() x columns.size(), row after row
  Scale scale = Scale::kSequential;
  std::optional<double> low = {}, high = {};  // ends of the colours; absent: those of the values,
                                              // for a diverging scale the same to both sides of 0
};

/// A figure that needs no script to be seen. With scripts, the pointer or, once it has the focus,
/// arrow keys choose a cell, whose row, column and value are read out below. Cells are one path per
/// colour, so that 20 x 2,000 cells are quick; numbers stand in the cells where there is room. Values
/// that are no numbers have no colour.
Markup draw(const HeatMap& map);

}  // namespace performer::report
