#include "performer/cli/data_table.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

namespace performer::cli {

std::string length_heading() {
  return fmt::format("{:<24} {:>10} {:>14} {:>6} {:>8} {:>9} {:>9} {:>9}\n", "part", "count",
                     "total", "min", "max", "mean", "std", "median");
}

std::string length_row(const std::string& name, const data::LengthStatistics& s) {
  return fmt::format("{:<24} {:>10} {:>14} {:>6} {:>8} {:>9.2f} {:>9.2f} {:>9}\n", name, s.count,
                     s.total, s.min, s.max, s.mean, s.std, s.median);
}

nlohmann::ordered_json to_json(const data::LengthStatistics& s) {
  return {{"count", s.count}, {"total", s.total}, {"min", s.min},      {"max", s.max},
          {"mean", s.mean},   {"std", s.std},     {"median", s.median}};
}

nlohmann::ordered_json to_json(const data::Baseline& b) {
  return {{"accuracy", b.accuracy}, {"perplexity", b.perplexity}};
}

std::string mended(const data::FastaCounts& c) {
  const std::array<std::pair<std::int64_t, const char*>, 7> kinds = {
      std::pair{c.blank, "records without residues skipped"},
      {c.gaps, "gaps dropped"},
      {c.end_stops, "stops dropped at the end"},
      {c.inner_stops, "stops inside read as X"},
      {c.unknown, "J read as X"},
      {c.duplicate_ids, "ids seen before, kept"},
      {c.duplicates, "equal sequences dropped"}};
  std::string text;
  for (const auto& [count, what] : kinds) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, what);
  }
  return text;
}

nlohmann::ordered_json to_json(const data::FastaCounts& c) {
  return {{"records", c.records},       {"residues", c.residues},
          {"blank", c.blank},           {"gaps", c.gaps},
          {"end_stops", c.end_stops},   {"inner_stops", c.inner_stops},
          {"unknown", c.unknown},       {"duplicate_ids", c.duplicate_ids},
          {"duplicates", c.duplicates}, {"bytes", c.bytes}};
}

}  // namespace performer::cli
