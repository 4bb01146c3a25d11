#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "performer/report/markup.h"

namespace performer::report {

/// Text, or a number: what is shown, and what its column is sorted by.
struct Cell {
  Cell(std::string words) : text(std::move(words)) {}              // NOLINT
  Cell(const char* words) : text(words) {}                         // NOLINT
  Cell(double value) : text(number_text(value)), number(value) {}  // NOLINT
  Cell(std::int64_t value)                                         // NOLINT
      : text(count_text(value)), number(static_cast<double>(value)) {}
  Cell(std::string shown, double value) : text(std::move(shown)), number(value) {}

  std::string text;
  std::optional<double> number;
};

struct Table {
  std::string title;
  std::vector<std::string> columns;     // empty: a list of facts, each named by its first cell
  std::vector<std::vector<Cell>> rows;  // each as long as columns
};

/// With scripts, the heads of the columns are buttons that sort it.
Markup draw(const Table& table);

/// The few numbers to see first: what each is, and it.
Markup key_figures(const std::vector<std::pair<std::string, std::string>>& figures);

}  // namespace performer::report
