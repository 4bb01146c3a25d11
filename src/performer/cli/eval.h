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
  std::vector<std::string> splits;          // or the name of `data`, as results show it
  std::int64_t batch = 0, max_batches = 0;  // 0: as in training; all
  std::int64_t length = 0;                  // 0: the recipe's
  std::int64_t overlap = -1;                // -1: rows are cut off, not continued by windows
  bool json = false, baselines = false, overwrite = false;
};

/// kUsage, naming the splits that there are, unless the run has this one.
void require_split(const infer::LoadedModel& loaded, const std::string& name);

/// The results of a split, or of --data under `name`, as --json shows them; lines of `table` where
/// it is asked for.
nlohmann::ordered_json evaluate_split(const EvalOptions& o, infer::LoadedModel& loaded,
                                      const std::string& name, SequenceTable* table);

/// What rows are parts of, and what those consist of, in words: "sequence" and "residues".
struct Units {
  std::string whole, parts;
};
Units units_of(const data::TokenSpace& space);

/// The splits as a person reads them.
std::string evaluation_text(const nlohmann::ordered_json& splits, const Units& units);

}  // namespace performer::cli
