#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "performer/infer/attention_quality.h"
#include "performer/report/page.h"

namespace performer::cli {

/// Relative error of the hidden states after each layer, of a model against its exact twin.
struct Growth {
  std::string name;  // what was compared
  std::vector<double> errors;
};

/// The attention of a model on sample rows, as `inspect` and `convert` report it.
struct AttentionReport {
  std::string rows;  // which ones, in words
  std::vector<infer::HeadQuality> heads;
  std::vector<infer::HeadQuality> exact = {};  // of a conversion: the model before it
  std::vector<Growth> growth;
};

/// Numbers that are not finite are null.
nlohmann::ordered_json to_json(const AttentionReport& report);

/// A table of heads, and one of the growth.
std::string to_text(const AttentionReport& report);

/// Maps of layers and heads, curves of the growth, and the table of all numbers.
void add_sections(report::Page& page, const AttentionReport& report);

/// One sentence: for how many heads the features beat plain averaging.
std::string verdict(const std::vector<infer::HeadQuality>& heads);

}  // namespace performer::cli
