#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "performer/data/fasta.h"
#include "performer/data/statistics.h"

namespace performer::cli {

/// Heading and a row of the table of lengths.
std::string length_heading();
std::string length_row(const std::string& name, const data::LengthStatistics& s);

nlohmann::ordered_json to_json(const data::LengthStatistics& s);
nlohmann::ordered_json to_json(const data::Baseline& b);

/// One line of JSON. Names of files may hold any bytes: what is not UTF-8 is shown as U+FFFD.
std::string json_line(const nlohmann::ordered_json& json);

nlohmann::ordered_json to_json(const data::FastaCounts& counts);

}  // namespace performer::cli
