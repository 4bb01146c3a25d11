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

/// What was mended while reading; empty where nothing was.
std::string mended(const data::FastaCounts& counts);
nlohmann::ordered_json to_json(const data::FastaCounts& counts);

}  // namespace performer::cli
