#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "performer/cli/model_options.h"
#include "performer/cli/sequence_table.h"

/// `performer eval`: options, one split, and how results are shown.
namespace performer::cli {

struct EvalOptions {
  ModelOptions model;
  std::string data, per_sequence;
  std::vector<std::string> splits;
  std::int64_t batch = 0, max_batches = 0;  // 0: as in training; all
  std::int64_t length = 0;                  // 0: the recipe's
  std::int64_t overlap = -1;                // -1: rows are cut off, not continued by windows
  bool json = false, baselines = false, overwrite = false;
};

/// The results of a split as --json shows them; lines of `table` where it is asked for.
nlohmann::ordered_json evaluate_split(const EvalOptions& o, train::LoadedModel& loaded,
                                      const std::string& split, SequenceTable* table);

/// The splits as a person reads them.
std::string evaluation_text(const nlohmann::ordered_json& splits);

}  // namespace performer::cli
