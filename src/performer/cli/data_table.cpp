#include "performer/cli/data_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

std::string json_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

nlohmann::ordered_json to_json(const data::FastaCounts& c) {
  return {{"records", c.records},       {"residues", c.residues},
          {"blank", c.blank},           {"gaps", c.gaps},
          {"end_stops", c.end_stops},   {"inner_stops", c.inner_stops},
          {"unknown", c.unknown},       {"duplicate_ids", c.duplicate_ids},
          {"duplicates", c.duplicates}, {"bytes", c.bytes}};
}

}  // namespace performer::cli
